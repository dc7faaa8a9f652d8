-- The SWIG module for Lua: exact integers, nil and a text and a code on error, buffers that stay. Started by test_swig_lua.sh.
package.cpath = os.getenv("HAWSER_BUILD_DIR") .. "/swig/lua/?.so"
local hawser = require "hawser.swig"
local SECOND = 1000000000

local pair = dofile(os.getenv("HAWSER_SOURCE_DIR") .. "/tests/abi/swig_pair.lua")(hawser)
local context, queue, worker, client, server = pair.context, pair.queue, pair.worker, pair.client, pair.server
local sink, take, kind = {queue = queue}, pair.take, pair.of_kind
local function of(op) return function(event) return event.op == op end end

local function equal(a, b)
    if a ~= b then error(("%s is not %s"):format(a, b), 2) end
end
local function refused(text, f, ...)
    local ok, message = pcall(f, ...)
    if ok or not tostring(message):find(text, 1, true) then error(("wanted %q, got %s"):format(text, message), 2) end
end

local tests = {}

function tests.integers_are_exact()
    local tag = math.mininteger + (1 << 53) + 1
    local buffer = hawser.buffer(8)
    local status, op = assert(hawser.tag_recv(server, buffer, tag, -1, {queue = queue, user = -1}))
    equal(status, 0)
    equal(math.type(op), "integer")
    assert(hawser.tag_send(client, "12345", tag, sink))
    local event = take(of(op))
    equal(event.tag, tag)
    equal(event.user, -1)
    equal(event.length, 5)
    equal(event.source, server)
    equal(buffer:sub(1, 5), "12345")
    equal(#buffer, 8)
    assert(hawser.user_set(server, -1))
    equal(hawser.user_get(server), -1)
    equal(hawser.FOREVER, -1)
    equal(hawser.E_STALE, -3)
end

function tests.errors()
    local nothing, text, code = hawser.worker_progress(client)
    equal(nothing, nil)
    equal(code, hawser.E_KIND)
    assert(text:find "^KIND: .*worker")
    equal(select(3, hawser.kind(12345)), hawser.E_BAD_ID)
    equal(hawser.last_error().code, hawser.E_BAD_ID)
    equal(hawser.error_name(-3), "STALE")
end

function tests.wrong_arguments()
    refused("string or buffer", hawser.tag_send, client, {}, 1)
    refused("buffer", hawser.tag_recv, client, "constant", 1, -1)
    refused("0 to 65535", hawser.listen, worker, "127.0.0.1", 65536)
    refused("0 to 4294967295", hawser.worker_open, context, {mode = 1 << 32})
    refused("no field callback", hawser.worker_open, context, {sink = {callback = print}})
    refused("no field nonsense", hawser.worker_open, context, {nonsense = 1})
    refused("is a table", hawser.worker_open, context, 5)
    refused("integer", hawser.kind, 1.5)
    refused("integer", hawser.kind, "1")
    refused("OP_DETACHED", hawser.tag_send, client, "", 1, {flags = hawser.OP_DETACHED})
    refused("OP_IOV", hawser.tag_send, client, "", 1, {flags = hawser.OP_IOV})
    equal(hawser.stats_get(context).ops_pending, 0)
end

function tests.a_buffer_stays_until_the_final_event()
    local freed = setmetatable({}, {__mode = "k"})
    local buffer = hawser.buffer(1000)
    freed[buffer] = true
    local _, op = assert(hawser.tag_recv(server, buffer, 5, -1, sink))
    buffer = nil
    collectgarbage() collectgarbage()
    assert(next(freed), "the buffer of a pending receive was collected")
    assert(hawser.tag_send(client, ("x"):rep(1000), 5, sink))
    equal(take(of(op)).length, 1000)
    collectgarbage() collectgarbage()
    assert(not next(freed), "the buffer outlived its operation")
end

function tests.inline_completion_gives_the_event()
    local status, event = assert(hawser.tag_send(client, "x", 1, {queue = queue, flags = hawser.OP_INLINE}))
    equal(status, hawser.DONE)
    equal(event.kind, hawser.EVENT_TAG_SEND)
end

function tests.wait_many_tells_what_ended()
    local _, op = assert(hawser.tag_recv(server, hawser.buffer(4), 77, -1))
    local status, left = hawser.wait_many({op}, hawser.WAIT_ALL, 1000000)
    equal(status, hawser.E_TIMED_OUT)
    equal(left[1], op)
    assert(hawser.cancel(op))
    local ended, ids, records = hawser.wait_many({op}, hawser.WAIT_ALL, 10 * SECOND)
    equal(ended, 1)
    equal(ids[1], 0)
    equal(records[1].status, hawser.E_CANCELED)
    equal(records[1].detail, "cancelled")
end

function tests.active_message()
    assert(hawser.am_handler(worker, 3, {sink = sink}))
    assert(hawser.am_send(client, 3, "head", ("data"):rep(1000), sink))
    local detail = take(kind(hawser.EVENT_AM)).detail
    equal(detail.header, "head")
    equal(detail.data, ("data"):rep(1000))
    equal(hawser.buffer_data(detail.buffer), ("data"):rep(1000))
    equal(hawser.close(detail.buffer), true)
    equal(select(3, hawser.buffer_data(detail.buffer)), hawser.E_STALE)
end

function tests.multi_buffer_message()
    assert(hawser.multi_recv(server, 9, -1, nil, sink))
    assert(hawser.multi_send(client, 9, {"abc", ("q"):rep(100000)}, nil, sink))
    local detail = take(kind(hawser.EVENT_MULTI_RECV)).detail
    equal(detail.segments[1].base, "abc")
    equal(detail.segments[2].base, ("q"):rep(100000))
    hawser.close(detail.buffer)
end

function tests.blobs()
    local blob = assert(hawser.blob_pack(worker, 0, {{key = -1, data = "one"}, {key = 7, data = ("x"):rep(10000)}}))
    equal(hawser.address_query(blob).items, 2)
    equal(hawser.blob_item_get(blob, 0).key, -1)
    equal(hawser.blob_item_get(blob, 1).data, ("x"):rep(10000))
    equal(select(3, hawser.blob_item_get(blob, 2)), hawser.E_NOT_FOUND)
end

function tests.options()
    local other = assert(hawser.context_open{name = "other", config = {"RNDV_THRESH", "1234"}})
    assert(hawser.worker_open(other, {mode = hawser.PROGRESS_BLOCKING, cpu_mask = {1, -1}}))
    equal(assert(hawser.close_wait(other, 10 * SECOND)), true)
    assert(hawser.describe(client):find "UCP endpoint")
end

local failed = 0
for name, test in pairs(tests) do
    local ok, message = xpcall(test, debug.traceback)
    print((ok and "ok: " or "FAIL: ") .. name .. (ok and "" or ": " .. message))
    failed = failed + (ok and 0 or 1)
end
assert(hawser.close_wait(context, 10 * SECOND))
hawser.close(queue)
os.exit(failed == 0 and 0 or 1, true)
