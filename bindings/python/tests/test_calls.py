"""The calls of endpoints that are written in C: arguments by position and by name, subclasses, the blocking twin.

SANITIZED
"""

import asyncio
import gc
import math
import threading
import warnings

import numpy as np
import pytest

import hawser
import hawser.sync
from hawser._context import nanoseconds


async def test_arguments_by_name(pair):
    client, server = pair
    into = bytearray(4)
    await client.send(buffer=b"1234", tag=2**64 - 2, timeout=5.0, sync=False)
    assert await server.recv(buffer=into, tag=2, mask=2, timeout=5) == 4
    await client.send(b"5678", timeout=None, tag=7)
    assert await server.recv(tag=7) == b"5678"
    await client.send_am(id=1, buffer=b"x", header=b"h")
    header, data = await server.recv_am(1)
    assert (header, bytes(data)) == (b"h", b"x")
    await client.stream_send(b"ab", timeout=5)
    assert await server.stream_recv(bytearray(4), exactly=False) == 2
    with pytest.raises(TypeError, match="unexpected or repeated argument 'nothing'"):
        client.send(b"", nothing=1)
    with pytest.raises(TypeError, match="repeated argument 'buffer'"):
        client.send(b"", buffer=b"")
    with pytest.raises(TypeError, match="needs the argument buffer"):
        client.send(tag=1)
    with pytest.raises(TypeError, match="at most 5"):
        client.send(b"", 1, None, False, None, 5)
    with pytest.raises(OverflowError):
        client.send(b"", -1)


async def test_methods_of_c_are_called_directly(pair):
    """The interpreter does so only where a method belongs to the very type of the object."""
    client, _ = pair
    assert type(client).__dict__["send"].__objclass__ is hawser.Endpoint
    assert hawser.sync.Endpoint.__dict__["recv"].__objclass__ is hawser.sync.Endpoint

    class Mine(hawser.Endpoint):
        def send(self, *args, **kwargs):
            return super().send(*args, **kwargs)

    client.__class__ = Mine
    try:
        await client.send(b"to a subclass")
    finally:
        client.__class__ = hawser.Endpoint


async def test_sent_bytearray_is_held_only_while_it_is_in_use(pair):
    client, server = pair
    small, large = bytearray(8), bytearray(4 << 20)
    await client.send(small)
    small.append(0)  # it has left
    sending = client.send(large)
    if not sending.done():
        with pytest.raises(BufferError):
            large.append(0)
    assert await server.recv(tag=0) == bytes(8)
    assert len(await server.recv(tag=0)) == 4 << 20
    await sending
    large.append(0)


async def test_blocking_calls(pair):
    client, server = (hawser.sync.Endpoint(end) for end in pair)
    into = bytearray(8)
    client.send(b"12345678", tag=3)
    assert server.recv(into, tag=3) == 8 and into == b"12345678"
    client.send(b"any")
    assert server.recv() == b"any"
    client.stream_send(b"xyz")
    assert server.stream_recv(bytearray(3)) == 3
    with pytest.raises(hawser.TimedOutError):
        server.recv(into, timeout=0.01)
    await asyncio.sleep(0)


async def test_another_operation_ends_while_one_is_awaited(pair):
    """Its end is not lost when the progress was made for somebody else."""
    client, server = pair
    first, second = bytearray(1), bytearray(1)
    waiting = server.recv(first, 1)
    awaited = server.recv(second, 2)
    await client.send(b"1", 1)
    await client.send(b"2", 2)
    assert await awaited == 1
    for _ in range(1000):
        if waiting.done():
            break
        await asyncio.sleep(0.001)
    assert waiting.result() == 1
    first.append(0)  # and the buffer was given back
    second.append(0)


def test_a_connect_ends_while_it_is_posted(context):
    """Another thread may tell the end of an operation before the thread that posted it goes on."""
    worker, over = hawser.Worker(context), threading.Event()

    def make_progress():
        while not over.is_set():
            worker.progress()

    thread = threading.Thread(target=make_progress)
    thread.start()
    address = worker.address(hello=False)
    try:
        made = [hawser.connect_address(address, worker=worker, lazy=True) for _ in range(200)]
        for connecting in made:
            connecting.operation.wait(10)
    finally:
        over.set()
        thread.join()
    assert len({id(connecting.operation) for connecting in made}) == len(made)
    assert [connecting.operation.result() for connecting in made] == [c.endpoint.id for c in made]
    for connecting in made:
        connecting.endpoint.close()
    worker.close().wait(10)


@pytest.mark.parametrize("port", [-1, 65536, 1 << 64])
def test_a_port_that_is_none(port):
    with hawser.Context() as context, hawser.Worker(context) as worker:
        for call in (hawser.listen, lambda port, host, worker: hawser.connect(host, port, worker=worker)):
            with pytest.raises(hawser.InvalidError, match="0 to 65535"):
                call(port, "127.0.0.1", worker=worker)
        with pytest.raises(TypeError):
            hawser.listen("80", "127.0.0.1", worker=worker)


async def test_what_takes_seconds_takes_infinity(context):
    for_ever = math.inf
    async with hawser.Worker(context, spin=1e-4) as worker:
        times = {"hello_timeout": for_ever, "close_timeout": for_ever}
        async with hawser.listen(host="127.0.0.1", worker=worker, **times) as listener:
            dialled = hawser.connect(
                "127.0.0.1", listener.port, worker=worker, timeout=for_ever, close_timeout=for_ever
            )
            async with dialled as client, await listener.accept() as server:
                await client.send(b"x", timeout=for_ever)
                assert await server.recv(timeout=for_ever) == b"x"
    assert nanoseconds("timeout", for_ever) == nanoseconds("timeout", 1e300) < 2**63


@pytest.mark.parametrize("progress", ["blocking", "thread"])
def test_a_worker_that_cannot_be_made_is_closed(progress):
    """The text tells which id was wrong."""
    with hawser.Context() as context, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(hawser.InvalidError, match="am_id 5000"):
            hawser.Worker(context, progress=progress, am_ids=(0, 5000))
        gc.collect()
        assert caught == []


async def test_ids_of_active_messages(pair, worker):
    """A wrong one is refused each time, and stands for no other."""
    client, server = pair
    for wrong in (1024, 5000, -1, 2**32 + 1):
        for _ in range(2):
            with pytest.raises(hawser.InvalidError):
                server.recv_am(wrong)
            with pytest.raises(hawser.InvalidError):
                worker.am_handler(wrong, None)
    await client.send_am(b"one", 1)
    assert bytes((await server.recv_am(1))[1]) == b"one"


async def test_a_fetch_whose_argument_ends_the_message(pair):
    client, server = pair
    sending = client.send_multi([b"hello", b"x" * 10], 1)
    message = await server.recv_multi(1)

    def buffers():
        yield bytearray(5)
        message.drop()
        yield bytearray(10)

    with pytest.raises(ValueError, match="dropped"):
        message.fetch(buffers())
    await sending


def test_features_that_are_none():
    for wrong in (["tag", "foo"], [None]):
        with pytest.raises(ValueError, match="is no feature"):
            hawser.Context(wrong)


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
async def test_a_deadline_that_never_comes(worker, timeout):
    async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
        client = await hawser.connect("127.0.0.1", listener.port, worker=worker, timeout=timeout)
        server = await listener.accept()
        with pytest.raises(hawser.TimedOutError):
            await server.recv_am(timeout=0.01)
        await asyncio.gather(client.close(), server.close())


async def test_what_stands_for_an_integer(pair):
    """numpy's integers, for one, are none of Python's."""

    class Number:
        def __index__(self) -> int:
            return 1 << 63

    client, server = pair
    await client.send(b"tag", Number())
    assert await server.recv(tag=Number()) == b"tag"
    await client.send(b"tag", np.int64(7))
    assert await server.recv(tag=np.uint8(7), mask=np.uint64(2**64 - 1)) == b"tag"
    with pytest.raises(TypeError):
        await client.send(b"tag", 7.0)
    with pytest.raises(OverflowError):
        await client.send(b"tag", np.int8(-1))


def test_a_configuration_that_is_none():
    for wrong in ({"TLS": "a\0b"}, {"T\0LS": "all"}):
        with pytest.raises(ValueError):
            hawser.Context(config=wrong)
    with pytest.raises(TypeError):
        hawser.Context(config={1: "all"})


@pytest.mark.parametrize("before", range(2))
def test_a_long_text_of_other_letters(before):
    """It is cut between two of them."""
    with pytest.raises(hawser.ConfigError, match="ä"):
        hawser.Context(config={"a" * before + "ä" * 200: "1"})
