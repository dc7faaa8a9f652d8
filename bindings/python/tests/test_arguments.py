"""Arguments that cannot be: each is refused by its name and at once, before anything is done."""

import asyncio
import math

import pytest

import hawser
import hawser.sync

HUGE = 2**53  # bytes() would make as many zeros
KEY = bytes(16)

# What an argument may not be, by what it is.
NO_NUMBER = ["abc", b"abc", [1], object(), 2.5, math.nan]
NO_COUNT = [*NO_NUMBER, -1, 2**70]
NO_TIME = ["abc", b"1", [1], object(), math.nan]
NO_BUFFER = [5, -1, HUGE, "abc", [1], object(), math.nan]
NO_TEXT = [5, -1, [1], object(), math.nan, b"abc"]
NO_FUNCTION = [5, -1, "abc", [1], object()]
NO_OBJECT = [None, 5, -1, 2**70, "abc", b"abc", [1], object(), math.nan]
NO_LOOP = [5, -1, object(), math.nan]
NO_NAMES = [5, -1, "abc", b"abc", [1], object(), math.nan]


@pytest.fixture
def context():
    with hawser.Context(["tag", "stream", "am", "rma", "atomic"]) as context:
        yield context


def refused(call, name, wrong, **others):
    for value in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError, BufferError), match=name):
            call(**{**others, name: value})


async def refused_soon(call, name, wrong, **others):
    """Of what is begun by an await."""
    for value in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError, BufferError), match=name):
            async with asyncio.timeout(20):
                await call(**{**others, name: value})


def test_of_a_context():
    refused(hawser.Context, "config", NO_NAMES)
    refused(hawser.Context, "features", [None, *NO_LOOP])
    refused(hawser.Context, "name", NO_TEXT)
    refused(hawser.Context, "ucx", NO_TEXT)
    refused(hawser.Context, "psk", [5, HUGE, "a" * 20, [1]])
    refused(hawser.Context, "isolated_max", [None, *NO_COUNT])
    refused(hawser.library, "ucx", NO_TEXT)
    refused(hawser.address_info, "address", NO_BUFFER)
    refused(hawser.address_items, "blob", NO_BUFFER)
    refused(lambda object: hawser.memory(object), "object", NO_BUFFER)
    with hawser.Context(psk=bytearray(KEY)) as context:
        refused(context.mem_register, "buffer", NO_BUFFER)
        refused(context.mem_alloc, "length", [None, *NO_COUNT])
        refused(context.close, "timeout", NO_TIME)
        assert not context.closed


def test_of_a_worker(context):
    def worker(**options):
        return hawser.Worker(**{"context": context, **options})

    refused(worker, "context", NO_OBJECT)
    refused(worker, "progress", NO_OBJECT)
    refused(worker, "backlog", [None, *NO_NUMBER, -1, math.inf])
    refused(worker, "spin", [None, *NO_TIME])
    refused(worker, "spares", [None, *NO_COUNT])
    refused(worker, "am_ids", [None, *NO_LOOP])
    refused(worker, "name", NO_TEXT)
    with worker() as it:
        refused(it.am_handler, "handler", NO_FUNCTION, id=1)
        refused(it.am_handler, "id", [None, *NO_NUMBER], handler=None)
        refused(it.recv, "tag", NO_COUNT, buffer=bytearray(1))
        refused(it.recv, "buffer", [None, *NO_BUFFER])
        refused(it.probe, "mask", [None, *NO_COUNT])
        refused(it.buffer, "length", [None, *NO_NUMBER, -1])
        refused(it.flush, "timeout", NO_TIME)
        refused(it.address, "items", NO_NAMES)
        for items in ({"a": b""}, {-1: b""}, {2**70: b""}, {1: HUGE}, {1: None}):
            with pytest.raises((TypeError, OverflowError), match="items"):
                it.address(items)
        assert hawser.address_items(it.address({1: bytearray(b"abc")})) == {1: b"abc"}


def test_of_listeners_and_connections(worker_of_now):
    worker = worker_of_now
    for listen in (hawser.listen, hawser.sync.listen):
        refused(listen, "worker", [5, "abc", object()])
        for name, wrong in {
            "host": NO_TEXT,
            "on_peer": NO_FUNCTION,
            "backlog": [None, *NO_NUMBER, -1],
            "hello_timeout": [None, *NO_TIME, -1],
            "close_timeout": [None, *NO_TIME, -1],
            "port": [None, "80", b"80", [1], object(), 2.5, math.nan],
        }.items():
            refused(listen, name, wrong, worker=worker)
    for connect in (hawser.connect, hawser.sync.connect):
        to = {"host": "127.0.0.1", "port": 1}
        refused(connect, "worker", [5, 0, "abc", object()], **to)
        for name, wrong in {
            "host": [None, *NO_TEXT],
            "timeout": NO_TIME,
            "close_timeout": [None, *NO_TIME, -1],
            "local_address": NO_TEXT,
        }.items():
            refused(connect, name, wrong, **{**to, "worker": worker})
    for connect in (hawser.connect_address, hawser.sync.connect_address):
        refused(connect, "address", [None, *NO_BUFFER], worker=worker)
        refused(connect, "timeout", NO_TIME, worker=worker, address=worker.address())
    refused(hawser.sync.Endpoint, "endpoint", NO_OBJECT)


@pytest.fixture
def worker_of_now(context):
    with hawser.Worker(context) as worker:
        yield worker


async def test_of_messages(pair):
    client, _ = pair
    for call, name, wrong in [
        (client.send, "buffer", [None, *NO_BUFFER]),
        (client.send, "tag", NO_COUNT),
        (client.send, "timeout", NO_TIME),
        (client.send, "stream", ["abc", [1], object(), -1, 2**70]),
        (client.recv, "tag", NO_COUNT),
        (client.recv, "mask", NO_COUNT),
        (client.recv, "timeout", NO_TIME),
        (client.stream_send, "buffer", [None, *NO_BUFFER]),
        (client.stream_recv, "timeout", NO_TIME),
        (client.send_am, "id", NO_COUNT),
        (client.send_am, "header", NO_BUFFER),
        (client.send_multi, "buffers", [None, 5, -1, "abc", b"abc", [1], object()]),
        (client.send_multi, "coalesce", [None, *NO_COUNT]),
        (client.recv_multi, "tag", [None, *NO_COUNT]),
        (client.recv_multi, "mask", [None, *NO_COUNT]),
        (client.probe, "tag", [None, *NO_COUNT]),
        (client.take, "mask", [None, *NO_COUNT]),
        (client.flush, "timeout", NO_TIME),
        (client.rkey_unpack, "packed", [None, *NO_BUFFER]),
        (client.plan, "transfers", [None, 5, "abc", b"abc", [1], [(1, 2)], [("put", 5, 0, b"")], object()]),
    ]:
        given = {"recv": bytearray(1), "stream_recv": bytearray(1), "send_multi": [b"a"]}.get(call.__name__, b"a")
        takes = {"send_multi": "buffers"}.get(call.__name__, "buffer")
        has = call.__name__ in ("send", "recv", "stream_send", "stream_recv", "send_am", "send_multi")
        refused(call, name, wrong, **({takes: given} if has else {}))
    await refused_soon(client.recv_obj, "allocator", [None, *NO_FUNCTION])
    await refused_soon(client.recv, "tag", NO_COUNT)


async def test_of_remote_memory(context, pair):
    client, _ = pair
    buffer = bytearray(8)
    with context.mem_alloc(64) as memory, client.rkey_unpack(bytearray(memory.rkey_pack())) as key:
        for name, wrong in {
            "offset": [None, *NO_NUMBER, 2**70],
            "buffer": [None, *NO_BUFFER],
            "timeout": NO_TIME,
        }.items():
            refused(key.put, name, wrong, **{"buffer": buffer, name: 0})
            refused(key.get, name, wrong, **{"buffer": buffer, name: 0})
        refused(key.put_notify, "value", [None, *NO_COUNT], buffer=buffer)
        refused(key.atomic, "action", NO_OBJECT, value=1)
        refused(key.atomic, "value", [None, *NO_COUNT], action="add")
        refused(key.atomic, "compare", [None, *NO_COUNT], action="cswap", value=1)
        refused(key.atomic, "size", [None, *NO_COUNT], action="add", value=1)
        refused(key.compare, "other", NO_OBJECT)
        refused(key.view, "offset", [None, *NO_NUMBER])
        refused(key.view, "length", NO_NUMBER)
        refused(memory.advise, "offset", [None, *NO_COUNT])
        refused(memory.advise, "length", NO_COUNT)
        for row in (("move", key, 0, buffer), ("put", 5, 0, buffer), ("put", key), None):
            with pytest.raises((TypeError, ValueError), match="transfers"):
                client.plan([row])
        for value in (None, *NO_NUMBER):
            with pytest.raises(TypeError, match="offset"):
                client.plan([("put", key, value, buffer)])
        with pytest.raises(TypeError, match="buffer"):
            client.plan([("put", key, 0, 5)])
        with client.plan([("put", key, 0, buffer)]) as plan:
            refused(plan.post, "timeout", NO_TIME)


async def test_a_wrong_timeout_takes_no_message(pair):
    """Nothing waits for the next message after it."""
    client, server = pair
    for wrong in NO_TIME:
        with pytest.raises((TypeError, ValueError), match="timeout"):
            server.recv_am(timeout=wrong)
        with pytest.raises((TypeError, ValueError), match="timeout"):
            hawser.sync.Endpoint(server).recv_am(timeout=wrong)
    await client.send_am(b"data")
    async with asyncio.timeout(20):
        assert bytes((await server.recv_am())[1]) == b"data"


async def test_a_message_that_was_received(pair, worker):
    client, server = pair
    await client.send(b"abc")
    while (message := server.take()) is None:
        worker.progress()
        await asyncio.sleep(0)
    assert await message.recv(bytearray(3)) == 3
    with pytest.raises(hawser.BadIdError, match="received, put back or dropped"):
        message.recv(bytearray(3))
