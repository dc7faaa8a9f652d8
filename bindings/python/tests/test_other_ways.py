"""Streams, active messages, flush. SANITIZED"""

import asyncio
import errno
import pickle
import time

import numpy as np
import pytest

import hawser


@pytest.mark.parametrize("size", [1, 1000, 100_000, 3_000_000])
async def test_stream(pair, size):
    client, server = pair
    out = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    into = np.zeros_like(out)
    sending = client.stream_send(out)
    assert await server.stream_recv(into) == size
    await sending
    assert (into == out).all()


async def test_stream_into_the_pool(pair):
    client, server = pair
    addresses = set()
    for n in range(3):
        data = bytes([n]) * 3_000_000
        into = server.worker.buffer(len(data))
        assert len(into) == len(data) and not into.pending
        sending = client.stream_send(data)
        assert await server.stream_recv(into) == len(data)
        await sending
        assert memoryview(into) == data
        addresses.add(np.asarray(into).ctypes.data)
        del into
    assert len(addresses) == 1
    assert len(server.worker.buffer(0)) == 0
    with pytest.raises(hawser.NoMemoryError):
        server.worker.buffer(1 << 60)
    with pytest.raises(ValueError, match="negative"):
        server.worker.buffer(-1)


async def test_stream_in_pieces(pair):
    client, server = pair
    await client.stream_send(b"abcdef")
    into = bytearray(4)
    got = b""
    while len(got) < 6:
        n = await server.stream_recv(into, exactly=False)
        got += into[:n]
    assert got == b"abcdef"


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 3_000_000])
async def test_active_message(pair, size):
    client, server = pair
    receive = server.recv_am(5)
    data = bytes(range(256)) * (size // 256 + 1)
    sending = client.send_am(data[:size], 5, b"head")
    header, got = await receive
    await sending
    assert header == b"head"
    assert bytes(got) == data[:size]


async def test_active_messages_wait(pair):
    client, server = pair
    for i in range(10):
        await client.send_am(bytes([i]), 6)
    assert [bytes((await server.recv_am(6))[1])[0] for _ in range(10)] == list(range(10))


async def test_active_messages_that_nobody_asks_for_are_bounded(pair, worker):
    client, server = pair
    await asyncio.gather(client.send_am(b"", 7), server.recv_am(7))
    sends = [client.send_am(i.to_bytes(4, "little"), 7) for i in range(20000)]
    await asyncio.sleep(0.1)
    left = sum(not send.done() for send in sends)
    assert left >= 20000 - 16384 - 10  # what a connection may have waiting by default
    kept = [await server.recv_am(7) for _ in sends]  # keeping what was taken costs nothing
    assert [int.from_bytes(bytes(data), "little") for _, data in kept] == list(range(20000))
    for send in sends:
        await send


async def test_errors_have_the_systems_number():
    async with hawser.listen(host="127.0.0.1") as listener:
        with pytest.raises(OSError) as raised:
            hawser.listen(host="127.0.0.1", port=listener.port)
        assert raised.value.errno == errno.EADDRINUSE
        port = listener.port
    with pytest.raises(OSError) as raised:
        await hawser.connect("127.0.0.1", port, timeout=5)
    assert raised.value.errno == errno.ECONNREFUSED
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), again.errno, str(again)) == (type(raised.value), errno.ECONNREFUSED, str(raised.value))
    assert hawser.HawserError(errno=errno.EIO).errno == errno.EIO
    late = hawser.TimedOutError("late")
    assert str(late) == "TIMED_OUT: late" and late.code == hawser.TimedOutError.code


async def test_handlers_that_raise_are_reported_to_the_loop(pair, worker):
    """And whoever waits for what comes is told of the end all the same."""
    client, server = pair
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["exception"]))
    worker.am_handler(9, lambda endpoint, header, data: {}[bytes(data)])
    await client.send_am(b"key", 9)
    while not reported:
        await asyncio.sleep(0.001)
    assert isinstance(reported.pop(), KeyError)
    worker.am_handler(9, None)

    def lost(endpoint):
        raise RuntimeError("lost")

    server.on_disconnect = lost
    waiting = asyncio.create_task(server.recv_am(8))
    await asyncio.sleep(0.01)
    client.abort()
    with pytest.raises(hawser.HawserError):
        await asyncio.wait_for(waiting, 5)
    while not reported:
        await asyncio.sleep(0.001)
    assert str(reported.pop()) == "lost"


async def test_am_handler_with_reply(pair, worker):
    client, server = pair
    got = asyncio.get_running_loop().create_future()

    def handler(endpoint, header, data):
        got.set_result((endpoint, header, bytes(data)))

    worker.am_handler(9, handler)
    await client.send_am(b"data", 9, b"h")
    endpoint, header, data = await got
    assert (endpoint, header, data) == (server, b"h", b"data")
    worker.am_handler(9, None)
    await client.send_am(b"dropped", 9)
    await client.flush()
    while worker.stats()["am_dropped"] == 0:
        await asyncio.sleep(0)


async def test_slow_handlers_leave_the_loop_its_turns(pair, worker):
    """However many messages wait; they are told of in their order."""
    client, _ = pair
    waiting, turns, told = 50, 0, []

    def handler(endpoint, header, data):
        told.append(bytes(data)[0])
        time.sleep(0.003)

    worker.am_handler(9, handler)
    for i in range(waiting):
        await client.send_am(bytes([i]), 9)
    while len(told) < waiting:
        await asyncio.sleep(0)
        turns += 1
    assert told == list(range(waiting))
    assert turns >= waiting / 2
    worker.am_handler(9, None)


async def test_a_receive_that_ends_behind_slow_handlers_gives_its_message_once(pair, worker):
    client, server = pair
    told, behind = [], 0

    def handler(endpoint, header, data):
        told.append(bytes(data)[0])
        time.sleep(0.002)

    worker.am_handler(9, handler)
    for i in range(20):
        into = bytearray(1)
        received = server.recv(into, 1)
        for _ in range(5):
            await client.send_am(bytes([i]), 9)
        await client.send(bytes([i]), 1)
        while not received.done():
            await asyncio.sleep(0)
        behind += len(told) < 5 * (i + 1)
        assert await received == 1 and into[0] == i
    while len(told) < 100:
        await asyncio.sleep(0)
    assert behind and server.probe(1) is None
    worker.am_handler(9, None)


async def test_am_fetch(pair, worker):
    client, server = pair
    got = asyncio.get_running_loop().create_future()
    worker.am_handler(3, lambda endpoint, header, data: got.set_result(data), defer=True)
    out = bytes(1_000_000)
    sending = client.send_am(out, 3, rndv=True)
    data = await got
    assert data.pending and len(data) == len(out)
    with pytest.raises(BufferError):
        bytes(data)
    into = bytearray(b"x" * len(out))
    assert await data.fetch(into) is into
    await sending
    assert into == out
    worker.am_handler(3, None)


async def test_header_too_long(pair, worker):
    client, _ = pair
    with pytest.raises(hawser.TooBigError):
        client.send_am(b"", 0, b"x" * (worker.am_header_max() + 1))


async def test_flush(pair, worker):
    client, server = pair
    await client.send(b"x", 1)
    await client.flush()
    await worker.flush()
    assert await server.recv(tag=1) == b"x"


async def test_info(pair, worker, context):
    client, server = pair
    info = client.info()
    assert info["peer_pid"] == server.info()["peer_pid"] != 0
    assert info["lanes"]
    for text in (client.describe(), worker.info(), context.info()):
        assert len(text) > 20
    assert worker.stats()["endpoints"] == 2
    assert context.stats()["endpoints"] == 2


async def test_explicit_listener(worker):
    async with hawser.listen(host="127.0.0.1", worker=worker, explicit=True) as listener:
        connecting = hawser.connect("127.0.0.1", listener.port, worker=worker)
        request = await listener.accept()
        server = await request.accept()
        client = await connecting
        await client.send(b"in", 1)
        assert await server.recv(tag=1) == b"in"
        refused = hawser.connect("127.0.0.1", listener.port, worker=worker)
        (await listener.accept()).reject()
        with pytest.raises(hawser.RejectedError):
            await refused
        await client.close()
        await server.close()


async def test_nobody_listens(worker):
    with pytest.raises(ConnectionRefusedError):
        await hawser.connect("127.0.0.1", 1, worker=worker)
    with pytest.raises(hawser.ResolveError):
        await hawser.connect("name.invalid", 1, worker=worker)


async def test_iterate_listener(worker):
    served = []
    async with hawser.listen(host="127.0.0.1", worker=worker) as listener:

        async def serve():
            async for endpoint in listener:
                served.append(await endpoint.recv(tag=1))
                await endpoint.close()

        task = asyncio.create_task(serve())
        for i in range(3):
            async with hawser.connect("127.0.0.1", listener.port, worker=worker) as ep:
                await ep.send(bytes([i]), 1)
                with pytest.raises(hawser.PeerClosedError):
                    await ep.recv(tag=1)
    await task
    assert served == [b"\0", b"\1", b"\2"]


async def test_backlog(worker):
    """More peers than may wait for accept() are turned away; as soon as one was accepted, the next may come."""
    async with hawser.listen(host="127.0.0.1", worker=worker, backlog=2) as listener:
        first, second, third = [await hawser.connect("127.0.0.1", listener.port, worker=worker) for _ in range(3)]
        with pytest.raises(hawser.PeerClosedError):
            await third.recv(tag=1)
        accepted = [await listener.accept() for _ in range(2)]
        fourth = await hawser.connect("127.0.0.1", listener.port, worker=worker)
        accepted.append(await listener.accept())
        for client, server in zip((first, second, fourth), accepted, strict=True):
            await client.send(b"in", 1)
            assert await server.recv(tag=1) == b"in"
        for endpoint in (first, second, third, fourth, *accepted):
            await endpoint.close()


async def test_backlog_of_requests(worker):
    async with hawser.listen(host="127.0.0.1", worker=worker, backlog=1, explicit=True) as listener:
        waiting = hawser.connect("127.0.0.1", listener.port, worker=worker)
        while not listener._peers.things:
            await asyncio.sleep(0.001)
        with pytest.raises(hawser.RejectedError):
            await hawser.connect("127.0.0.1", listener.port, worker=worker)
        server = await (await listener.accept()).accept()
        async with await waiting:
            await server.close()


async def test_a_peer_gives_up_before_it_is_let_in(worker):
    async with hawser.listen(host="127.0.0.1", worker=worker, explicit=True) as listener:
        connecting = hawser.connect("127.0.0.1", listener.port, worker=worker)
        request = await listener.accept()
        connecting.endpoint.abort()
        while listener.worker.stats()["endpoints"]:
            await asyncio.sleep(0.001)
        with pytest.raises(hawser.StaleError):
            request.accept()


async def test_a_peer_gives_up_while_it_is_let_in(worker):
    async with hawser.listen(host="127.0.0.1", worker=worker, explicit=True) as listener:
        connecting = hawser.connect("127.0.0.1", listener.port, worker=worker)
        accepting = (await listener.accept()).accept()
        connecting.endpoint.abort()
        async with await asyncio.wait_for(accepting, 20) as endpoint:
            with pytest.raises(hawser.HawserError):
                await endpoint.recv(tag=1)
