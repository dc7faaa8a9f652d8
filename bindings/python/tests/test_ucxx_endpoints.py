"""UCXX programs: endpoints and worker addresses, and how they end. TIMEOUT: 300"""

import asyncio
import logging
import os

import pytest
from ucp_support import event_loop_policy, fresh_ucxx, mp  # noqa: F401
from ucxx_support import connected

from hawser import ucxx
from hawser.ucxx._lib_async.utils_test import captured_logger, wait_listener_client_handlers
from hawser.ucxx.types import Tag


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
