-- Replays vectors through the SWIG module for Lua: arg[1] is a Lua file of vectors; prints a name and a code on each line.
package.cpath = os.getenv("HAWSER_BUILD_DIR") .. "/swig/lua/?.so"
local hawser = require "hawser.swig"

local open_pair = dofile(os.getenv("HAWSER_SOURCE_DIR") .. "/tests/abi/swig_pair.lua")

local function open_each()
    local ids, pair = {}, open_pair(hawser, {features = 31})
    local context, worker, client, server = pair.context, pair.worker, pair.client, pair.server
    local sink = {queue = pair.queue}
    local _, op = assert(hawser.tag_recv(server, hawser.buffer(8), 99, -1))
    assert(hawser.tag_send(client, "message", 1, sink))
    local message
    while not message do
        hawser.worker_progress(worker)
        local _
        _, message = hawser.tag_probe(server, 1, -1)
        if type(message) ~= "number" then message = nil end
    end
    assert(hawser.am_handler(worker, 1, {sink = sink}))
    assert(hawser.am_send(client, 1, "h", "data", sink))
    ids.context, ids.worker, ids.listener, ids.endpoint = context, worker, pair.listener, server
    ids.queue, ids.op, ids.message = assert(hawser.queue_open()), op, message
    ids.buffer = pair.take(pair.of_kind(hawser.EVENT_AM)).detail.buffer
    ids.memory = assert(hawser.mem_alloc(context, 4096))
    ids.rkey = assert(hawser.rkey_unpack(server, assert(hawser.rkey_pack(ids.memory, 0)), 0))
    local nothing = {kind = hawser.EVENT_GET, rkey = ids.rkey, address = assert(hawser.mem_query(ids.memory)).base}
    ids.plan = assert(hawser.plan_open(server, {nothing}))
    return ids
end

local ids = {zero = 0, random = (1 << 53) - 1}
local gone = open_each()
assert(hawser.cancel(gone.op))
assert(hawser.wait(gone.op, 10000000000))
for _, kind in ipairs{"message", "buffer", "queue"} do assert(hawser.close(gone[kind])) end
assert(hawser.close_wait(gone.context, 10000000000))
for kind, id in pairs(gone) do ids["stale " .. kind] = id end
for kind, id in pairs(open_each()) do ids[kind] = id end

for _, vector in ipairs(dofile(arg[1])) do
    local args, n = {}, 0
    for _, given in ipairs(vector.args) do
        n = n + 1
        if given.id then
            args[n] = assert(ids[given.id], given.id)
        elseif given.memory then
            args[n] = hawser.buffer(given.memory)
        elseif given.value ~= nil then
            args[n] = given.value
        end
    end
    local result, _, code = hawser[vector.call](table.unpack(args, 1, n))
    print(("%s\t%d"):format(vector.name, result == nil and code or 0))
end
assert(hawser.close_wait(ids.context, 10000000000))
