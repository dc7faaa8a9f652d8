"""UCXX programs: its asyncio API. TIMEOUT: 300"""

import asyncio
import copy
import gc
import logging
import os
from types import SimpleNamespace

import numpy as np
import pytest
from ucp_support import fresh_ucxx, mp  # noqa: F401

from hawser import ucxx
from hawser.ucxx._lib_async import Endpoint
from hawser.ucxx._lib_async.utils_test import captured_logger, compute_timeouts, wait_listener_client_handlers
from hawser.ucxx.types import Tag

SIZES = [1, 4096, 1 << 20]


@pytest.fixture
def event_loop_policy():
    return asyncio.DefaultEventLoopPolicy()


async def connected(serve, **options):
    listener = ucxx.create_listener(serve, **options)
    return listener, await ucxx.create_endpoint(ucxx.get_address(), listener.port, **options)


async def pair():
    """A listener, an endpoint of it in a list, and a client's."""
    kept = []
    listener, client = await connected(kept.append)
    while not kept:
        await asyncio.sleep(0.001)
    return listener, kept, client


async def test_no_copies():
    listener, _kept, client = await pair()
    for thing in (listener, client):
        with pytest.raises(TypeError, match=r"copied|pickle"):
            copy.copy(thing)
    listener.close()
    await client.close()


# ---- Settings ----


def test_versions_and_names():
    assert ucxx.__version__.startswith("0.52") and ucxx.core._ctx is None
    assert ucxx.__ucx_version__ == ".".join(map(str, ucxx.get_ucx_version()))
    assert ucxx.exceptions.UCXCanceled is ucxx.exceptions.UCXCanceledError
    assert issubclass(ucxx.exceptions.UCXMsgTruncated, ucxx.exceptions.UCXError)
    assert ucxx.UCXError is ucxx.exceptions.UCXError and ucxx.ucx_api is ucxx.libucxx
    assert ucxx.ApplicationContext is ucxx.core.ApplicationContext and ucxx.logger.name == "ucx"
    assert ucxx.get_address("lo") == "127.0.0.1"
    with pytest.raises(OSError):
        ucxx.get_address("no-such-interface")


def test_options(monkeypatch):
    monkeypatch.delenv("UCX_TLS", raising=False)
    assert ucxx.get_config()["TLS"] == "all"
    monkeypatch.setenv("UCX_SEG_SIZE", "2M")
    assert ucxx.get_config()["SEG_SIZE"] == "2M"
    options = {"SEG_SIZE": "3M"}
    ucxx.init(options)
    assert ucxx.get_config()["SEG_SIZE"] == "3M"
    with pytest.raises(RuntimeError):
        ucxx.init()
    ucxx.reset()
    ucxx.init(options, env_takes_precedence=True)
    assert ucxx.get_config()["SEG_SIZE"] == "2M" and options == {"SEG_SIZE": "3M"}
    ucxx.reset()
    with pytest.raises(ucxx.exceptions.UCXInvalidParamError):
        ucxx.init({"SEG_SIZE": "invalid-size"})


def test_logging():
    for level, silent in ((logging.INFO, False), (logging.ERROR, True)):
        with captured_logger("ucx", level) as log:
            ucxx.reset()
            ucxx.init({"SEG_SIZE": "3M"})
        assert (log.getvalue() == "") is silent


@pytest.mark.parametrize("mode", ["blocking", "polling", "thread", "thread-polling"])
@pytest.mark.parametrize("by", ["arguments", "environment"])
async def test_progress_modes(mode, by, monkeypatch):
    threaded = mode.startswith("thread")
    if by == "arguments":
        arguments = {"progress_mode": mode, "enable_delayed_submission": threaded, "enable_python_future": True}
    else:
        arguments = {}
        monkeypatch.setenv("UCXPY_PROGRESS_MODE", mode)
        monkeypatch.setenv("UCXPY_ENABLE_DELAYED_SUBMISSION", "1" if threaded else "0")
        monkeypatch.setenv("UCXPY_ENABLE_PYTHON_FUTURE", "1")
    ucxx.init(**arguments)
    context = ucxx.core._get_ctx()
    assert context.progress_mode == mode
    assert context.worker.enable_delayed_submission is threaded and context.worker.enable_python_future is threaded

    async def echo(ep):
        message = bytearray(5)
        await ep.recv(message)
        await ep.send(message)

    listener, client = await connected(echo)
    message = bytearray(5)
    await asyncio.gather(client.send(b"hello"), client.recv(message))
    assert message == b"hello"
    await client.close()
    await wait_listener_client_handlers(listener)
    listener.close()


def test_refused_modes():
    with pytest.raises(ValueError, match="Unknown progress mode"):
        ucxx.init(progress_mode="none")
    with pytest.raises(ValueError, match="Delayed submission requested, but"):
        ucxx.init(progress_mode="blocking", enable_delayed_submission=True)


@pytest.mark.parametrize("transports", ["sysv", "tcp", "posix,tcp"])
def test_information(transports):
    ucxx.init({"TLS": transports, "NET_DEVICES": "all"})
    active = ucxx.get_active_transports()
    assert all(any(a.startswith(t) for a in active) for t in transports.split(","))
    assert ucxx.get_ucp_context_info() and ucxx.get_ucp_worker_info()


async def test_handles():
    async def serve(ep):
        assert ep.ucp_worker == ucxx.get_ucp_worker() and ep.ucxx_worker == ucxx.get_ucxx_worker()
        await ep.close()

    listener, client = await connected(serve)
    assert client.ucp_endpoint == client.uid > 0 and client.ucxx_endpoint > 0
    assert client.ucp_worker == ucxx.get_ucp_worker() and client.ucxx_worker == ucxx.get_ucxx_worker()
    assert isinstance(listener.ip, str) and 0 < listener.port < 65536
    await client.close()
    await wait_listener_client_handlers(listener)
    assert listener.active_clients == 0


# ---- Messages ----


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


# ---- Endings ----


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


@pytest.mark.parametrize("server_calls", [True, False])
async def test_close_callback(server_calls):
    closed = asyncio.get_running_loop().create_future()

    def callback(word, *, key):
        closed.set_result((word, key))

    async def serve(ep):
        if server_calls:
            ep.set_close_callback(callback, ("word",), {"key": 1})
            await closed
        await ep.close()

    listener, client = await connected(serve)
    if server_calls:
        await client.close()
    else:
        client.set_close_callback(callback, ("word",), {"key": 1})
    assert await asyncio.wait_for(closed, 30) == ("word", 1)
    await client.close()
    with pytest.raises(RuntimeError):
        client.set_close_callback(callback)
    await wait_listener_client_handlers(listener)


@pytest.mark.parametrize("what", ["am", "tag", "tag_multi"])
@pytest.mark.parametrize("mine", [True, False])
async def test_close_cancels_what_waits(what, mine):
    let_go = asyncio.Event()

    async def serve(ep):
        await let_go.wait()

    listener, client = await connected(serve)
    receives = {"am": client.am_recv, "tag": lambda: client.recv(bytearray(1)), "tag_multi": client.recv_multi}
    waiting = asyncio.ensure_future(receives[what]())
    await asyncio.sleep(0.01)
    let_go.set()
    if mine:
        await client.close()
    with pytest.raises(ucxx.exceptions.UCXCanceledError):
        await asyncio.wait_for(waiting, 30)
    await client.close()
    await wait_listener_client_handlers(listener)


async def test_close_after_n_recv_and_premature_listener():
    async def serve(ep):
        for _ in range(10):
            await ep.send(bytearray(10))
        await released.wait()
        served.set()

    released, served = asyncio.Event(), asyncio.Event()

    listener, client = await connected(serve)
    await client.recv(bytearray(10))
    with captured_logger("ucx", logging.WARNING) as log:
        del listener
    assert log.getvalue().startswith("Listener object is being destroyed")
    client.close_after_n_recv(10, count_from_ep_creation=True)
    with pytest.raises(ucxx.exceptions.UCXError, match="close_after_n_recv has already been set"):
        client.close_after_n_recv(1)
    for _ in range(9):
        await client.recv(bytearray(10))
    assert client.closed
    with pytest.raises(ucxx.exceptions.UCXCloseError):
        await client.send(b"1")
    released.set()
    await served.wait()


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


async def test_reset_is_refused_while_something_is_open():
    def serve(ep):
        ep.abort()

    listener, client = await connected(serve)
    await wait_listener_client_handlers(listener)
    with pytest.raises(ucxx.exceptions.UCXError, match="Trying to reset UCX but not all Endpoints"):
        ucxx.reset()
    assert listener.closed is False
    listener.close()
    client.abort()
    assert listener.closed is True


async def test_many_clients():
    async def serve(ep):
        message = bytearray(5)
        await ep.recv(message)
        await ep.send(message)
        await ep.close()

    async def client(port):
        ep = await ucxx.create_endpoint(ucxx.get_address(), port)
        message = bytearray(5)
        await asyncio.gather(ep.send(b"hello"), ep.recv(message))
        assert message == b"hello"
        await ep.close()

    listeners = [ucxx.create_listener(serve) for _ in range(2)]
    await asyncio.gather(*(client(listener.port) for listener in listeners for _ in range(20)))
    for listener in listeners:
        await wait_listener_client_handlers(listener)


# ---- Worker addresses ----


def by_address(pipe):
    async def main():
        ep = await ucxx.create_endpoint_from_worker_address(ucxx.get_ucx_address_from_buffer(pipe.recv()))
        mine = bytes(ucxx.get_worker_address())
        await ep.send(len(mine).to_bytes(8, "little"), tag=0, force_tag=True)
        await ep.send(mine, tag=1, force_tag=True)
        got = bytearray(10)
        await ep.recv(got, tag=7, force_tag=True)
        await ep.send(got, tag=8, force_tag=True)
        while not pipe.poll():
            await asyncio.sleep(0.01)

    asyncio.run(main())


async def test_worker_address():
    here, there = mp.Pipe()
    process = mp.Process(target=by_address, args=(there,))
    process.start()
    here.send(bytes(ucxx.get_worker_address()))
    length = bytearray(8)
    await ucxx.recv(length, tag=0)
    address = bytearray(int.from_bytes(length, "little"))
    await ucxx.recv(address, tag=Tag(1))
    ep = await ucxx.create_endpoint_from_worker_address(ucxx.get_ucx_address_from_buffer(address))
    with pytest.raises(ValueError):
        await ep.send(b"no tag")
    await ep.send(b"0123456789", tag=Tag(7), force_tag=True)
    got = bytearray(10)
    await ucxx.recv(got, tag=8)
    assert got == b"0123456789"
    here.send("end")
    await asyncio.to_thread(process.join, 30)
    assert process.exitcode == 0
    ep.abort()


async def test_multi_by_worker_address():
    """Also none is lost whose receive is cancelled."""
    ep = await ucxx.create_endpoint_from_worker_address(ucxx.get_worker_address())
    at = {"tag": 9, "force_tag": True}
    receiving = asyncio.ensure_future(ep.recv_multi(**at))
    await ep.send_multi([b"one", b"", b"three"], **at)
    assert [bytes(b) for b in await receiving] == [b"one", b"", b"three"]
    with pytest.raises(ValueError):
        await ep.send_multi([b"no tag"])
    for i in range(30):
        receiving = asyncio.ensure_future(ep.recv_multi(**at))
        await asyncio.sleep(0)
        await ep.send_multi([bytes([i])], **at)
        for _ in range(i % 4):
            await asyncio.sleep(0)
        receiving.cancel()
        try:
            got = await receiving
        except asyncio.CancelledError:
            got = await asyncio.wait_for(ep.recv_multi(**at), 20)
        assert bytes(got[0]) == bytes([i])
    receiving = asyncio.ensure_future(ep.recv_multi(**at))
    await asyncio.sleep(0.01)
    await ep.close()
    with pytest.raises(ucxx.exceptions.UCXCanceledError):
        await asyncio.wait_for(receiving, 20)


def leaving(pipe):
    pipe.send(bytes(ucxx.get_worker_address()))
    pipe.recv()
    ucxx.reset()


@pytest.mark.parametrize("what", ["am_send", "send", "am_recv", "recv"])
async def test_worker_address_of_one_that_left(what, monkeypatch):
    monkeypatch.setenv("UCX_KEEPALIVE_INTERVAL", "100ms")
    here, there = mp.Pipe()
    process = mp.Process(target=leaving, args=(there,))
    process.start()
    ep = await ucxx.create_endpoint_from_worker_address(ucxx.get_ucx_address_from_buffer(here.recv()))
    here.send("leave")
    for _ in range(3000):
        if not ep.alive:
            break
        await asyncio.sleep(0.01)
        ucxx.progress()
    calls = {
        "am_send": lambda: ep.am_send(b"x"),
        "send": lambda: ep.send(b"x", tag=0, force_tag=True),
        "am_recv": ep.am_recv,
        "recv": lambda: ep.recv(bytearray(1), tag=0, force_tag=True),
    }
    with pytest.raises((ucxx.exceptions.UCXConnectionResetError, ucxx.exceptions.UCXEndpointTimeoutError)):
        await asyncio.wait_for(calls[what](), 30)
    ep.abort()
    await asyncio.to_thread(process.join, 30)


def dying(port, error_handling):
    async def main():
        ep = await ucxx.create_endpoint(ucxx.get_address(), port, endpoint_error_handling=error_handling)
        await ep.recv(bytearray(10))
        os._exit(0)

    asyncio.run(main())


@pytest.mark.parametrize("error_handling", [True, False])
async def test_peer_dies(error_handling):
    met = asyncio.get_running_loop().create_future()

    async def serve(ep):
        await ep.send(b"0123456789")
        met.set_result(ep)

    listener = ucxx.create_listener(serve, endpoint_error_handling=error_handling)
    process = mp.Process(target=dying, args=(listener.port, error_handling))
    process.start()
    ep = await met
    await asyncio.to_thread(process.join, 30)
    await asyncio.sleep(0.3)
    ucxx.progress()
    assert ep.alive is not error_handling
    await ep.close()
    await wait_listener_client_handlers(listener)


def test_interface_names():
    assert all(hasattr(ucxx, name) for name in ucxx.__all__) and len(ucxx.__all__) > 20


@pytest.mark.parametrize("kept, wanted", [("stash", (590.0, 595.0)), ("cache", (90.0, 95.0)), (None, (50.0, 55.0))])
def test_timeouts_below_those_of_a_test(kept, wanted):
    """As UCXX's own conftest keeps them, of this version and of older ones."""
    from hawser.ucxx._lib_async.pytest_stash_keys import ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY

    config = SimpleNamespace(stash=pytest.Stash(), cache={})
    if kept == "stash":
        config.stash[ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY] = 600.0
    elif kept == "cache":
        config.cache["asyncio_timeout"] = {"timeout": 100.0}
    assert compute_timeouts(config) == wanted
