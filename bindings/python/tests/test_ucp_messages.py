"""UCX-Py programs: sending and receiving. TIMEOUT: 240"""

import asyncio
import functools
import gc
import random
import time

import numpy as np
import pytest
from ucp_support import connected, event_loop_policy, fresh_ucp  # noqa: F401

import ucp

MODES = [True, False]


@pytest.mark.parametrize("size", [1, 10, 10_000, 16 << 20])
@pytest.mark.parametrize("blocking", MODES)
async def test_echo_of_bytes(size, blocking):
    ucp.init(blocking_progress_mode=blocking)
    msg = bytearray(b"m" * size)

    async def echo(ep):
        into = bytearray(size)
        await ep.recv(into)
        await ep.send(into)
        await ep.close()

    listener, client = await connected(echo)
    assert await client.send(msg) is True
    resp = bytearray(size)
    assert await client.recv(resp) is True
    assert resp == msg
    listener.close()
    await client.close()


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
@pytest.mark.parametrize("dtype", ["u1", "i8", "f4"])
async def test_echo_of_arrays(size, dtype):
    msg = np.arange(size).astype(dtype)

    async def echo(ep):
        into = np.empty(size, dtype)
        await ep.recv(into)
        await ep.send(into)

    listener, client = await connected(echo)
    await client.send(msg)
    resp = np.empty_like(msg)
    await client.recv(resp)
    np.testing.assert_array_equal(resp, msg)
    await client.close()
    listener.close()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("size", [3, 200])
async def test_wrong_size(before, size):
    """A message shorter than the buffer, and one longer, whether it came before the receive or after."""

    async def say_hi(ep):
        await asyncio.sleep(0 if before else 0.1)
        await ep.send(bytearray(size))
        await asyncio.sleep(0.3)

    listener, client = await connected(say_hi)
    if before:
        await asyncio.sleep(0.1)
    kind, text = (ucp.exceptions.UCXMsgTruncated, r"length mismatch: 3 \(got\) != 100 \(expected\)")
    if size > 100:
        kind, text = ucp.exceptions.UCXError, "Message truncated"
    with pytest.raises(kind, match=text):
        await client.recv(bytearray(100))
    await client.close()
    listener.close()


async def test_objects():
    async def echo(ep):
        await ep.send_obj(await ep.recv_obj())
        got = await ep.recv_obj(tag="array", allocator=functools.partial(np.empty, dtype=np.uint8))
        assert isinstance(got, np.ndarray)
        await ep.send_obj(got, tag="array")

    listener, client = await connected(echo)
    for msg, options in ((bytearray(b"m" * 10), {}), (np.arange(100_000), {"tag": "array"})):
        await client.send_obj(msg, **options)
        assert bytes(await client.recv_obj(**options)) == bytes(msg)
    await client.close()
    listener.close()


@pytest.mark.parametrize("tag", [None, "objects"])
@pytest.mark.parametrize("size", [10, 20_000, 200_000])
async def test_objects_that_are_sent_at_once_stay_whole(size, tag):
    """More than go out without progress: some of the sizes wait, and their objects follow them all the same."""
    objects = [bytes([n]) * (size + n) for n in range(100)]

    async def send(ep):
        await asyncio.gather(*(ep.send_obj(obj, tag) for obj in objects))

    listener, client = await connected(send)
    assert [await client.recv_obj(tag) for _ in objects] == objects
    await client.close()
    listener.close()


async def test_tags_in_any_order():
    async def server(ep):
        first, second = bytearray(5), bytearray(5)
        await asyncio.gather(ep.recv(second, tag="msg2"), ep.recv(first, tag="msg1"))
        assert (first, second) == (b"first", b"secon")
        await asyncio.gather(ep.send(b"three", tag=3), ep.send(b"four4", tag=4, force_tag=True))

    listener, client = await connected(server)
    await client.send(b"first", tag="msg1")
    await client.send(b"secon", tag="msg2")
    four, three = bytearray(5), bytearray(5)
    await client.recv(four, tag=4, force_tag=True)
    await client.recv(three, tag=3)
    assert (three, four) == (b"three", b"four4")
    await client.close()
    listener.close()


@pytest.mark.parametrize("size", [10, 1 << 20])
@pytest.mark.parametrize("allocator", [lambda n: bytearray(n - 1), lambda n: bytes(1 // 0)], ids=["short", "raises"])
async def test_active_message_without_memory(allocator, size):
    """The receiver is told what is wrong; the sender does not wait for it for ever."""
    accepted = asyncio.get_running_loop().create_future()
    listener, client = await connected(accepted.set_result)
    server = await accepted
    ucp.register_am_allocator(allocator, "host")
    sending = asyncio.ensure_future(client.am_send(bytearray(size)))
    with pytest.raises((ZeroDivisionError, ValueError, ucp.exceptions.UCXError)) as failure:
        await server.am_recv()
    assert await asyncio.wait_for(sending, 10) is True
    assert failure.traceback
    ucp.register_am_allocator(bytearray, "host")
    await client.am_send(b"next")
    assert await server.am_recv() == b"next"
    await client.close()
    await server.close()
    listener.close()


@pytest.mark.parametrize("size", [0, 10, 1 << 20])
async def test_an_allocator_that_rounds_up(size):
    accepted = asyncio.get_running_loop().create_future()
    listener, client = await connected(accepted.set_result)
    server = await accepted
    ucp.register_am_allocator(lambda n: bytearray(n + 5), "host")
    sending = asyncio.ensure_future(client.am_send(bytes(size * [7])))
    assert await server.am_recv() == bytes(size * [7] + 5 * [0])
    await sending
    ucp.register_am_allocator(bytearray, "host")
    await client.close()
    await server.close()
    listener.close()


@pytest.mark.parametrize("size", [0, 1, 1000, 8192, 3_000_000])
@pytest.mark.parametrize("wait_first", [True, False])
@pytest.mark.parametrize("allocator", [None, bytearray, lambda n: np.empty(n, dtype=np.uint8)])
async def test_active_messages(size, wait_first, allocator):
    ucp.init()
    if allocator is not None:
        ucp.register_am_allocator(allocator, "host")
    with pytest.raises(ucp.exceptions.UCXError):
        ucp.register_am_allocator(bytearray, "nonsense")

    async def echo(ep):
        if wait_first:
            await asyncio.sleep(0.05)
        await ep.am_send(await ep.am_recv())
        await ep.close()

    listener, client = await connected(echo)
    msg = np.arange(size, dtype=np.uint8)
    await client.am_send(msg)
    got = await client.am_recv()
    assert isinstance(got, np.ndarray if allocator not in (None, bytearray) else bytearray)
    assert bytes(got) == msg.tobytes()
    await client.close()
    listener.close()


@pytest.mark.parametrize("tls", ["tcp,self", "all"])
@pytest.mark.parametrize("size", [4096, 32768, 1 << 19])
async def test_what_was_sent_before_closing_is_there_after_it(tls, size):
    ucp.init(options={"TLS": tls, "RNDV_THRESH": "8192"})
    received = []

    async def server(ep):
        received.append(await ep.am_recv())

    listener, client = await connected(server)
    await asyncio.sleep(0.1)
    await client.am_send(bytearray(size))
    await client.close()
    assert len(received) == 1
    listener.close()


async def test_refused_buffers():
    kept = []
    listener, client = await connected(kept.append)
    with pytest.raises(ValueError, match="contiguous"):
        await client.send(np.arange(10)[::2])
    with pytest.raises(ValueError, match="contiguous"):
        await client.send_obj(np.arange(10)[::2])
    with pytest.raises(ValueError, match="readonly"):
        await client.recv(b"bytes")
    for receive in (client.recv, lambda buffer: client.recv(buffer, tag=1), lambda buffer: ucp.recv(buffer, tag=1)):
        for buffer in (None, 1, "text"):
            with pytest.raises(TypeError):
                await asyncio.wait_for(receive(buffer), 20)
    await client.close()
    for call in (client.send(b""), client.recv(bytearray()), client.am_send(b""), client.am_recv(), client.flush()):
        with pytest.raises(ucp.exceptions.UCXCloseError):
            await call
    listener.close()
    kept.pop().abort()


async def test_cancelled_receive_takes_no_message():
    async def server(ep):
        await asyncio.sleep(0.1)
        await ep.send(b"later")
        await asyncio.sleep(0.5)

    listener, client = await connected(server)
    for _ in range(3):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(client.recv(bytearray(5)), 0.01)
    into = bytearray(5)
    await client.recv(into)
    assert into == b"later"
    await client.close()
    listener.close()


async def test_flush_and_fence():
    assert ucp.fence() is None
    await ucp.flush()
    assert ucp.core._ctx is None
    kept = []
    listener, client = await connected(kept.append)
    ucp.fence()
    await ucp.flush()
    await client.flush()
    await client.close()
    listener.close()
    kept.pop().abort()


async def test_comm():
    async def echo(ep):
        into = ucp.Array(bytearray(4))
        await ucp.comm.tag_recv(ep._ep, into, 4, ep._tags["msg_recv"])
        await ucp.comm.tag_send(ep._ep, into, 4, ep._tags["msg_send"])
        await ucp.comm.stream_recv(ep._ep, into, 4)
        await ucp.comm.stream_send(ep._ep, into, 4)
        got = await ucp.comm.am_recv(ep._ep)
        await ucp.comm.am_send(ep._ep, ucp.Array(got), len(got))

    listener, client = await connected(echo)
    into = bytearray(4)
    await client.send(b"tag!")
    await client.recv(into)
    assert into == b"tag!"
    await ucp.comm.stream_send(client._ep, ucp.Array(b"strm"), 4)
    await ucp.comm.stream_recv(client._ep, ucp.Array(into), 4)
    assert into == b"strm"
    await client.am_send(b"am!!")
    assert await client.am_recv() == b"am!!"
    await client.close()
    listener.close()


@pytest.mark.parametrize("size", [8, 4 << 20])
async def test_cancelled_receives_of_the_lower_calls_take_no_message(size):
    received = asyncio.Event()

    async def serve(ep):
        await received.wait()
        await ep.send(bytes([1]) * size)
        await ucp.comm.stream_send(ep._ep, ucp.Array(bytes([2]) * size), size)
        await ep.close()

    listener, client = await connected(serve)
    tag = client._tags["msg_recv"]
    for post in (
        lambda into: ucp.comm.tag_recv(client._ep, ucp.Array(into), size, tag),
        lambda into: ucp.comm.stream_recv(client._ep, ucp.Array(into), size),
    ):
        given_up = bytearray(size)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(post(given_up), 0.05)
        assert not any(given_up)
    received.set()
    into = bytearray(size)
    await asyncio.wait_for(client.recv(into), 10)
    assert into == bytes([1]) * size
    await asyncio.wait_for(ucp.comm.stream_recv(client._ep, ucp.Array(into), size), 10)
    assert into == bytes([2]) * size
    listener.close()


def test_close_leaves_the_loop_awake():
    """close() makes progress by itself; what the other end waits for must wake the loop afterwards."""

    async def echo(ep):
        message = bytearray(128)
        await ep.recv(bytearray(8))
        await ep.recv(message)
        await ep.send(message)
        await ep.close()

    async def main():
        # No deadline of a connection is near that would wake the loop instead.
        ucp.init(connect_timeout=600)
        _, client = await connected(echo)
        await client.send(bytearray(8))
        await client.send(bytearray(128))
        start = time.monotonic()
        async with asyncio.timeout(60):
            await client.recv(bytearray(128))
        assert time.monotonic() - start < 50

    for _ in range(60):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        ucp.reset()
        loop.close()


async def test_an_active_message_after_a_timeout():
    """What nobody waits for any more is the next one's."""

    async def serve(ep):
        for word in (b"one", b"two"):
            await ep.recv(bytearray(1))
            await ep.am_send(word)
        await ep.recv(bytearray(1))
        await ep.close()

    listener, client = await connected(serve)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(client.am_recv(), 0.02)
    await client.send(b"1")
    await client.send(b"2")
    assert [bytes(await client.am_recv()) for _ in range(2)] == [b"one", b"two"]
    await client.send(b"3")
    listener.close()
    await client.close()


async def test_active_messages_that_come_as_the_time_is_up():
    count, got, late = 1500, [], 0

    async def serve(ep):
        for number in range(count):
            await ep.am_send(number.to_bytes(4, "little"))
            if number % 3 == 0:
                await asyncio.sleep(random.random() * 0.0005)
        await ep.recv(bytearray(1))
        await ep.close()

    listener, client = await connected(serve)
    end = time.monotonic() + 30
    while len(got) < count and time.monotonic() < end:
        try:
            async with asyncio.timeout(random.random() * 0.0005):
                got.append(int.from_bytes(bytes(await client.am_recv()), "little"))
        except TimeoutError:
            late += 1
    assert got == list(range(count))
    assert late > 100
    await client.send(b"!")
    listener.close()
    await client.close()


async def test_a_handler_that_waits_for_an_active_message_is_kept():
    """Nobody else holds its task."""

    async def echo(ep):
        await ep.am_send(await ep.am_recv())

    listener = ucp.create_listener(echo)
    client = await ucp.create_endpoint("127.0.0.1", listener.port)
    await asyncio.sleep(0.1)
    gc.collect()
    await client.am_send(b"abc")
    assert bytes(await asyncio.wait_for(client.am_recv(), 30)) == b"abc"
    await client.close()
    listener.close()
