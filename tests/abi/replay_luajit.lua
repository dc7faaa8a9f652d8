-- Replays vectors through LuaJIT's ffi: arg[1] is a Lua file of vectors; prints a name and a code on each line.
package.path = os.getenv("HAWSER_SOURCE_DIR") .. "/bindings/lua/?.lua"
local abi, ffi = require "hawser.cdef", require "ffi"
ffi.cdef(abi.cdef)
local lib = ffi.load(os.getenv "HAWSER_LIBRARY")
local C = abi.constants
local ALL = 0xffffffffffffffffULL

local function check(result)
    if result < 0 then
        local last = ffi.new("hws_error", {struct_size = ffi.sizeof "hws_error"})
        lib.hws_last_error(last)
        error(("%d: %s"):format(result, ffi.string(last.text)), 2)
    end
    return result
end
local function sized(name, fields)
    local s = ffi.new(name)
    s.struct_size = ffi.sizeof(name)
    for key, value in pairs(fields or {}) do s[key] = value end
    return s
end
local function filled(call, ...)
    local out = ffi.new "hws_id[1]"
    local args = {...}
    args[select("#", ...) + 1] = out
    check(call(unpack(args, 1, select("#", ...) + 1)))
    return out[0]
end

local function open_each()
    local ids = {}
    local context = filled(lib.hws_context_open, sized("hws_context_opts", {features = 31}))
    local queue = filled(lib.hws_queue_open, nil)
    local sink = {queue = queue}
    local worker = filled(lib.hws_worker_open, context, sized("hws_worker_opts", {sink = sink}))
    local listener = filled(lib.hws_listen, worker, "127.0.0.1", 0,
        sized("hws_listener_opts", {sink = sink, endpoint_sink = sink}))
    local info = sized "hws_listener_info"
    check(lib.hws_listener_query(listener, info))
    local told = sized("hws_op_opts", {queue = queue})
    local client = ffi.new "hws_id[1]"
    check(lib.hws_connect(worker, "127.0.0.1", info.port, nil, told, client, nil))
    client = client[0]
    local seen, events = {}, ffi.new "hws_event[1]"
    local function take(kind, field)
        while not seen[kind] do
            if check(lib.hws_queue_pop(queue, events, 1, 100000000)) == 1 then
                assert(events[0].status == 0)
                local detail = events[0].kind == C.EVENT_AM and ffi.cast("const hws_am_detail *", events[0].detail)
                seen[events[0].kind] = {source = events[0].source, buffer = detail and detail.buffer}
            end
        end
        return seen[kind][field]
    end
    take(C.EVENT_CONNECT, "source")
    local server = take(C.EVENT_ACCEPTED, "source")
    -- Static: a receive that is pending until the context closes must not lose its memory to the collector.
    received = received or ffi.new "char[64]"
    ids.op = filled(lib.hws_tag_recv, server, received, 8, 99, ALL, nil)
    local detached = sized("hws_op_opts", {flags = C.OP_DETACHED})
    check(lib.hws_tag_send(client, "message", 8, 1, detached, nil))
    local message = ffi.new "hws_id[1]"
    while lib.hws_tag_probe(server, 1, ALL, nil, message) ~= 0 do lib.hws_worker_progress(worker) end
    check(lib.hws_am_handler(worker, 1, sized("hws_am_opts", {sink = sink})))
    check(lib.hws_am_send(client, 1, "h", 1, "data", 4, detached, nil))
    ids.context, ids.worker, ids.listener, ids.endpoint = context, worker, listener, server
    ids.queue, ids.message, ids.buffer = filled(lib.hws_queue_open, nil), message[0], take(C.EVENT_AM, "buffer")
    ids.memory = filled(lib.hws_mem_alloc, context, 4096, nil)
    local packed, needed = ffi.new "char[4096]", ffi.new "uint64_t[1]"
    check(lib.hws_rkey_pack(ids.memory, 0, packed, 4096, needed))
    ids.rkey = filled(lib.hws_rkey_unpack, server, packed, needed[0], 0)
    local info, nothing = sized "hws_mem_info", ffi.new "hws_transfer[1]"
    check(lib.hws_mem_query(ids.memory, info))
    nothing[0].kind, nothing[0].rkey = C.EVENT_GET, ids.rkey
    nothing[0].address = ffi.cast("uint64_t", info.base)
    ids.plan = filled(lib.hws_plan_open, server, nothing, 1)
    return ids
end

local ids = {zero = 0, random = 2 ^ 53 - 1}
local gone = open_each()
check(lib.hws_cancel(gone.op))
check(lib.hws_wait(gone.op, 10000000000, nil) == -80 and 0 or -1)
for _, kind in ipairs{"message", "buffer", "queue"} do check(lib.hws_close(gone[kind])) end
check(lib.hws_close_wait(gone.context, 10000000000))
for kind, id in pairs(gone) do ids["stale " .. kind] = id end
for kind, id in pairs(open_each()) do ids[kind] = id end

local function structure(name, how)
    local size = ffi.sizeof(name)
    local memory = ffi.new("char[?]", size + 8)
    local given = ({known = size, zero = 0, huge = 65537, tail = size + 8})[how]
    ffi.cast("uint32_t *", memory)[0] = given
    if how == "tail" then memory[size + 7] = 1 end
    return memory
end

for _, vector in ipairs(dofile(arg[1])) do
    local args, keep, n = {}, {}, 0
    for _, given in ipairs(vector.args) do
        n = n + 1
        local kind = given.options or given.info
        if given.id then
            args[n] = assert(ids[given.id], given.id)
        elseif kind then
            keep[n] = structure(kind, given.size)
            args[n] = ffi.cast("void *", keep[n])
        elseif given.memory or given.fill or given.records or given.ids then
            keep[n] = ffi.new "char[4096]"
            args[n] = ffi.cast("void *", keep[n])
        elseif given.callback then
            keep[n] = ffi.cast(given.callback, function() error "a callback of a refused call" end)
            args[n] = keep[n]
        else
            args[n] = given.number or given.text
        end
    end
    print(("%s\t%d"):format(vector.name, lib[vector["function"]](unpack(args, 1, n))))
end
check(lib.hws_close_wait(ids.context, 10000000000))
