"""UCXX programs: the messages of its asyncio API. TIMEOUT: 300"""

import asyncio
import gc

import numpy as np
import pytest
from ucp_support import event_loop_policy, fresh_ucxx, mp  # noqa: F401
from ucxx_support import connected, pair

from hawser import ucxx
from hawser.ucxx._lib_async import Endpoint
from hawser.ucxx._lib_async.utils_test import wait_listener_client_handlers
from hawser.ucxx.types import Tag

SIZES = [1, 4096, 1 << 20]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["|u1", "<i8", "f8"])
async def test_echo(size, dtype):
    async def echo(ep):
        nbytes = np.empty(1, dtype=np.uint64)
        await ep.recv(nbytes)
        message = np.empty(nbytes[0], dtype="u1")
        await ep.recv(message)
        await ep.send(message)
        await ep.close()

    listener, client = await connected(echo)
    message = np.arange(size, dtype=dtype)
    await client.send(np.array([message.nbytes], dtype=np.uint64))
    await client.send(message)
    got = np.empty_like(message)
    await client.recv(got)
    np.testing.assert_array_equal(got, message)
    await wait_listener_client_handlers(listener)


async def test_lengths():
    """A shorter message is none the worse for it, a longer one is refused."""

    async def serve(ep):
        await ep.send(b"Hey")
        await ep.send(b"0123456789")
        await ep.recv(bytearray(1))

    listener, client = await connected(serve)
    into = bytearray(100)
    assert await client.recv(into) is None and into[:3] == b"Hey"
    with pytest.raises(ucxx.exceptions.UCXMessageTruncatedError):
        await client.recv(bytearray(3))
    await client.send(b"1")
    await wait_listener_client_handlers(listener)


async def test_objects_and_tags():
    async def serve(ep):
        await ep.send_obj(await ep.recv_obj())
        await ep.send(b"one", tag="one")
        await asyncio.sleep(0.1)
        await ep.send(b"two", tag="two")

    listener, client = await connected(serve)
    await client.send_obj(bytearray(b"hello"))
    assert await client.recv_obj() == bytearray(b"hello")
    one, two = bytearray(3), bytearray(3)
    await asyncio.gather(client.recv(two, tag="two"), client.recv(one, tag="one"))
    assert (one, two) == (b"one", b"two")
    await wait_listener_client_handlers(listener)


@pytest.mark.parametrize("tag", [None, 7])
async def test_objects_that_are_sent_at_once_stay_whole(tag):
    objects = [bytes([n]) * (10 + n) for n in range(100)]

    async def serve(ep):
        await asyncio.gather(*(ep.send_obj(obj, tag) for obj in objects))
        with pytest.raises(ValueError):
            await ep.send_obj(memoryview(b"0123456789")[::2])

    listener, client = await connected(serve)
    assert [await client.recv_obj(tag) for _ in objects] == objects
    await wait_listener_client_handlers(listener)


@pytest.mark.parametrize("size", [0, *SIZES])
@pytest.mark.parametrize("wait", [True, False])
async def test_active_messages(size, wait):
    async def echo(ep):
        await ep.am_send(await ep.am_recv())
        await ep.close()

    listener, client = await connected(echo)
    if wait:
        await asyncio.sleep(0.1)
    message = np.arange(size, dtype=np.int64)
    await client.am_send(message)
    np.testing.assert_array_equal((await client.am_recv()).view(np.int64), message)
    await client.close()
    await wait_listener_client_handlers(listener)


async def test_active_messages_with_headers():
    async def echo(ep):
        data, header = await ep.am_recv_with_header()
        await ep.am_send(data, user_header=header)
        await ep.am_send_iov([b"ab", b"", b"cde"], user_header=b"iov")
        await ep.am_send(b"last")

    listener, client = await connected(echo)
    await client.am_send(b"data", user_header=b"head\0\1\xff")
    for data, header in ((b"data", b"head\0\1\xff"), (b"abcde", b"iov"), (b"last", b"")):
        got = await client.am_recv_with_header()
        assert (bytes(got[0]), got[1]) == (data, header)
    await wait_listener_client_handlers(listener)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [0, 1, 3, 200])
async def test_multi(size, count):
    if size * count > 1 << 24:
        count = 8

    async def echo(ep):
        await ep.send_multi(await ep.recv_multi())
        await ep.close()

    listener, client = await connected(echo)
    message = [np.arange(size, dtype="u1")] * count
    await client.send_multi(message)
    got = await client.recv_multi()
    assert len(got) == count
    for mine, theirs in zip(message, got, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(ValueError):
        await (await ucxx.create_endpoint(ucxx.get_address(), listener.port)).send_multi(b"no list")
    await client.close()
    listener.close()
    await wait_listener_client_handlers(listener)


@pytest.mark.parametrize("what", ["am", "tag", "tag_remove"])
async def test_probe_after_the_peer_left(what):
    message = bytearray(b"0123456789")

    async def serve(ep):
        while not ep.closed:
            await asyncio.sleep(0)
        got = bytearray(10)
        if what == "am":
            assert ep._ep.am_probe() is True
            got = bytes(await ep.am_recv())
        elif what == "tag":
            found = ep.tag_probe()
            assert found and (found.length, found.handle) == (10, None)
            assert ep._ctx.worker.tag_probe(Tag(ep._tags["msg_recv"])).matched
            await ep.recv(got)
        else:
            found = ep._ctx.worker.tag_probe(Tag(ep._tags["msg_recv"]), remove=True)
            assert found.matched and found.sender_tag == ep._tags["msg_recv"]
            assert not ep.tag_probe()
            await ep.recv_with_handle(got, found)
        assert got == message
        done.set_result(True)

    done = asyncio.get_running_loop().create_future()
    listener, client = await connected(serve)
    await (client.am_send(message) if what == "am" else client.send(message))
    await client.close()
    assert await asyncio.wait_for(done, 30)
    await wait_listener_client_handlers(listener)


@pytest.mark.parametrize("what", ["am", "tag", "multi", "force", "worker"])
async def test_a_cancelled_receive_takes_no_message(what):
    """Neither the one that comes next, nor the one that came before the receiver went on."""
    listener, kept, client = await pair()

    async def received():
        into = bytearray(4)
        if what == "am":
            return bytes((await kept[0].am_recv_with_header())[0])
        if what == "multi":
            return bytes((await kept[0].recv_multi())[0])
        if what == "worker":
            await ucxx.recv(into, 77)
        elif what == "force":
            await kept[0].recv(into, tag=77, force_tag=True)
        else:
            await kept[0].recv(into)
        return bytes(into)

    def send(data):
        if what == "am":
            return client.am_send(data, user_header=data)
        if what in ("force", "worker"):
            return client.send(data, tag=77, force_tag=True)
        return client.send_multi([data]) if what == "multi" else client.send(data)

    for _ in range(3):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(received(), 0.01)
    for i in range(60):
        data = i.to_bytes(4, "little")
        receiving = asyncio.ensure_future(received())
        await asyncio.sleep(0)
        await send(data)
        for _ in range(i % 3):
            await asyncio.sleep(0)
        receiving.cancel()
        try:
            got = await receiving
        except asyncio.CancelledError:
            got = await asyncio.wait_for(received(), 20)
        assert got == data
    await client.close()
    await kept.pop().close()
    listener.close()


@pytest.mark.parametrize("what", ["am", "tag", "multi", "worker"])
async def test_a_task_that_nobody_else_holds_still_receives(what):
    got = []
    listener, kept, client = await pair()

    async def receive():
        into = bytearray(4)
        if what == "worker":
            await ucxx.recv(into, tag=5)
        elif what == "tag":
            await kept[0].recv(into)
        else:
            into = await kept[0].am_recv() if what == "am" else (await kept[0].recv_multi())[0]
        got.append(bytes(into))

    asyncio.ensure_future(receive())  # noqa: RUF006
    await asyncio.sleep(0.01)
    gc.collect()
    data = b"data"
    if what == "worker":
        await client.send(data, tag=5, force_tag=True)
    else:
        await {"am": client.am_send, "tag": client.send, "multi": lambda data: client.send_multi([data])}[what](data)
    while not got:
        await asyncio.sleep(0.001)
    assert got == [data]
    await client.close()
    await kept.pop().close()
    listener.close()


async def test_what_calls_give():
    """None, but for what is received."""
    listener, kept, client = await pair()
    peer, into, at = kept.pop(), bytearray(1), {"tag": 5, "force_tag": True}
    assert await client.send(b"1") is None and await peer.recv(into) is None
    assert await client.am_send(b"1") is None and await client.am_send_iov([b"2"]) is None
    assert [bytes(await peer.am_recv()) for _ in range(2)] == [b"1", b"2"]
    assert await client.send_multi([b"1"]) is None and type(await peer.recv_multi()) is list
    await client.send(b"1", **at)
    assert await ucxx.recv(into, tag=5) is None
    await client.send(b"1", **at)
    while not (found := peer.tag_probe(**at, remove=True)):
        await asyncio.sleep(0)
    assert await peer.recv_with_handle(into, found) is None
    with pytest.raises(RuntimeError):
        await peer.recv_with_handle(into, found)
    await client.close()
    await peer.close()
    listener.close()


async def test_wrong_arguments():
    listener, client = await connected(lambda ep: None)
    for tag, error in (("5", TypeError), (b"5", TypeError), (-1, OverflowError), (2**64, OverflowError)):
        for call in (client.send, client.recv):
            with pytest.raises(error):
                await call(bytearray(1), tag=tag, force_tag=True)
        with pytest.raises(error):
            await ucxx.recv(bytearray(1), tag=tag)
        with pytest.raises(error):
            client.tag_probe(tag=tag, force_tag=True)
    with pytest.raises(TypeError):
        client.close_after_n_recv("a")
    with pytest.raises(ValueError):
        Endpoint(1, 2)
    with pytest.raises(ucxx.exceptions.UCXBusyError):
        ucxx.create_listener(print, listener.port)
    with pytest.raises(ucxx.exceptions.UCXInvalidAddrError):
        await ucxx.create_endpoint("name.invalid", 12345)
    for port in (-1, 1 << 16):
        with pytest.raises(OverflowError):
            await ucxx.create_endpoint("127.0.0.1", port)
    await client.close()
    for name in ("ucxx_worker", "ucp_worker", "ucxx_endpoint"):
        with pytest.raises(AttributeError):
            getattr(client, name)
    listener.close()
