"""UCX-Py programs: how endpoints end, by a close or with their peer. TIMEOUT: 240"""

import asyncio
import os
import time

import pytest
from ucp_support import connected, event_loop_policy, fresh_ucp, mp  # noqa: F401

import ucp
from hawser import ErrorCode, HawserError


@pytest.mark.parametrize("server_closes", [True, False])
async def test_close_callback(server_closes):
    called = [0]

    def count():
        called[0] += 1

    async def server(ep):
        if not server_closes:
            ep.set_close_callback(count)
        await ep.send(bytearray(10))
        await ep.recv(bytearray(10))
        if server_closes:
            await ep.close()
        else:
            with pytest.raises(ucp.exceptions.UCXBaseException):
                await ep.recv(bytearray(1))

    listener, client = await connected(server)
    if server_closes:
        client.set_close_callback(count)
    await client.recv(bytearray(10))
    await client.send(bytearray(10))
    if not server_closes:
        await client.close()
    for _ in range(1000):
        if called[0]:
            break
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    assert called == [1]
    await client.close()
    listener.close()


async def test_close_callback_that_is_set_after_the_end():
    """Who sets it learns of the end, whichever comes first; on an endpoint that is closed here it is an error."""
    listener, client = await connected(lambda ep: ep.abort())
    while not client.closed():
        await asyncio.sleep(0.005)
    called = []
    client.set_close_callback(lambda: called.append(1))
    assert called == [1]
    await client.close()
    assert called == [1]
    with pytest.raises(ucp.exceptions.UCXCloseError):
        client.set_close_callback(lambda: called.append(2))
    listener.close()


@pytest.mark.parametrize("am", [True, False])
@pytest.mark.parametrize("server_closes", [True, False])
async def test_close_ends_what_waits(am, server_closes):
    match = "While waiting for am_recv the endpoint was closed" if am else r"Recv.*tag"
    ended = asyncio.get_running_loop().create_future()

    async def wait(ep):
        with pytest.raises(ucp.exceptions.UCXCanceled, match=match):
            await (ep.am_recv() if am else ep.recv(bytearray(1)))
        ended.set_result(True)

    async def close(ep):
        await asyncio.sleep(0.1)
        await ep.close()

    listener, client = await connected(close if server_closes else wait)
    await (wait if server_closes else close)(client)
    await asyncio.wait_for(ended, 10)
    listener.close()


async def test_messages_outlive_their_sender():
    """What was sent before the close arrives, however late the receiver is."""

    async def server(ep):
        for i in range(10):
            await ep.send(bytes([i]) * 10)
        await ep.am_send(b"active")
        await ep.close()

    listener, client = await connected(server)
    await asyncio.sleep(0.2)
    into = bytearray(10)
    for i in range(10):
        await client.recv(into)
        assert into == bytes([i]) * 10
    assert await client.am_recv() == b"active"
    for _ in range(200):
        if client.closed():
            break
        await asyncio.sleep(0.01)
    assert client.closed()
    listener.close()


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("size", [1, 65536, 3_000_000])
async def test_close_hands_over_what_was_sent(size, waits):
    """Where both ends are on one loop, a receive that waits has the last message when close() returns."""
    got = []

    async def server(ep):
        got.append(await ep.am_recv())

    listener, client = await connected(server)
    if waits:
        await asyncio.sleep(0.05)
    await client.am_send(b"x" * size)
    await client.close()
    assert got == [b"x" * size]
    listener.close()


async def test_close_after_n_recv():
    async def server(ep):
        for _ in range(10):
            await ep.send(bytearray(10))

    for n, from_creation, received in ((10, False, 0), (5, False, 5), (10, True, 5), (0, False, 10), (10, True, 10)):
        listener, client = await connected(server)
        for _ in range(received):
            await client.recv(bytearray(10))
        client.close_after_n_recv(n, count_from_ep_creation=from_creation)
        if received < 10:
            with pytest.raises(ucp.exceptions.UCXError, match="already been set"):
                client.close_after_n_recv(10)
        for _ in range(10 - received):
            await client.recv(bytearray(10))
        assert client.closed()
        listener.close()
    listener, client = await connected(server)
    for _ in range(10):
        await client.recv(bytearray(10))
    with pytest.raises(ucp.exceptions.UCXError, match="`n` cannot be less than current recv_count"):
        client.close_after_n_recv(5, count_from_ep_creation=True)
    await client.close()
    listener.close()


async def test_closed_by_the_peer_at_the_next_await():
    """The peer closes once we have its last message; we see that when we wait again."""

    async def server(ep):
        await ep.send(b"1")
        await ep.close()

    listener, client = await connected(server)
    await asyncio.sleep(0.2)
    await client.recv(bytearray(1))
    assert isinstance(client.ucx_info(), str) and client.get_ucp_worker() == ucp.get_ucp_worker()
    with pytest.raises(ucp.exceptions.UCXCanceled, match=r"Recv.*tag"):
        await client.recv(bytearray(1))
    with pytest.raises(ucp.exceptions.UCXBaseException):
        await client.recv(bytearray(1))
    await client.close()
    listener.close()


@pytest.mark.parametrize("am", [False, True])
async def test_closed_by_the_peer_before_we_receive(am):
    async def server(ep):
        await ep.close()

    listener, client = await connected(server)
    await asyncio.sleep(0.2)
    with pytest.raises(ucp.exceptions.UCXCanceled, match="am_recv" if am else "Recv.*tag"):
        await (client.am_recv() if am else client.recv(bytearray(1)))
    await client.close()
    listener.close()


async def test_both_close(caplog):
    """Our goodbye may fail because of the peer's before anything else tells of that: no failure to anybody."""

    class Left:
        async def send(self, *args):
            raise HawserError(ErrorCode.PEER_CLOSED, text="the peer said goodbye")

    listener, client = await connected(lambda ep: None)
    client._hawser = Left()
    assert not client.closed()
    await client.close()
    assert caplog.text == ""
    listener.close()


def dying(port, error_handling):
    async def main():
        ep = await ucp.create_endpoint(ucp.get_address(), port, endpoint_error_handling=error_handling)
        await ep.send(b"0123456789")
        await ep.recv(bytearray(10))
        os._exit(0)

    asyncio.run(main())


@pytest.mark.parametrize("what", ["recv", "am_recv", "recv by tag"])
async def test_peer_dies_while_we_wait(what):
    met = asyncio.get_running_loop().create_future()
    ends = []

    async def server(ep):
        ends.append(ep)
        message = bytearray(10)
        await ep.recv(message)
        calls = {
            "recv": lambda: ep.recv(message),
            "am_recv": lambda: ep.am_recv(),
            "recv by tag": lambda: ep.recv(message, tag=3, force_tag=True),
        }
        waiting = asyncio.ensure_future(calls[what]())
        await ep.send(message)
        met.set_result(waiting)

    listener = ucp.create_listener(server)
    process = mp.Process(target=dying, args=(listener.port, True))
    process.start()
    with pytest.raises(ucp.exceptions.UCXCanceled):
        await asyncio.wait_for(await met, 30)
    process.join()
    listener.close()
    # It is told once: what comes next learns what has become of the connection.
    for call in (ends[0].recv(bytearray(1)), ends[0].am_recv(), ends[0].recv(bytearray(1), tag=3)):
        with pytest.raises(ucp.exceptions.UCXConnectionReset):
            await call
    ends.pop().abort()


@pytest.mark.parametrize("transports", ["all", "tcp"])
async def test_what_a_dead_peer_raises(transports):
    """The same with each UCX and transport, though UCX's codes differ."""
    ucp.init({"TLS": transports})
    met = asyncio.get_running_loop().create_future()
    listener = ucp.create_listener(met.set_result)
    process = mp.Process(target=dying, args=(listener.port, True))
    process.start()
    ep = await met
    message = bytearray(10)
    await ep.recv(message)
    waiting = [asyncio.ensure_future(ep.recv(message)), asyncio.ensure_future(ep.am_recv())]
    await asyncio.sleep(0)  # both wait before the peer goes
    await ep.send(message)
    for one in waiting:
        with pytest.raises(ucp.exceptions.UCXCanceled):
            await asyncio.wait_for(one, 30)
    process.join()
    while not ep.closed():
        await asyncio.sleep(0.005)
    for call in (ep.send(message), ep.am_send(message), ep.flush()):
        with pytest.raises(ucp.exceptions.UCXConnectionReset):
            await call
    await ep.close()
    listener.close()


async def test_close_before_the_end_is_known(caplog):
    """UCX refuses what is sent to a dead peer before it tells that the endpoint has failed."""
    ucp.init({"TLS": "tcp"})
    met = asyncio.get_running_loop().create_future()
    listener = ucp.create_listener(met.set_result)
    process = mp.Process(target=dying, args=(listener.port, True))
    process.start()
    ep = await met
    await ep.recv(bytearray(10))
    process.kill()
    process.join()
    with pytest.raises(ucp.exceptions.UCXBaseException):
        while True:
            await ep.send(b"hello")
            time.sleep(0.01)  # the loop gets no turn
    await ep.close()
    assert "UCX failed closing worker" not in caplog.text
    listener.close()


@pytest.mark.parametrize("error_handling", [True, False])
async def test_peer_dies(error_handling, caplog):
    met = asyncio.get_running_loop().create_future()

    async def server(ep):
        message = bytearray(10)
        await ep.recv(message)
        await ep.send(message)
        met.set_result(ep)

    listener = ucp.create_listener(server, endpoint_error_handling=error_handling)
    process = mp.Process(target=dying, args=(listener.port, error_handling))
    process.start()
    ep = await met
    while process.is_alive():
        await asyncio.sleep(0.01)
    process.join()
    await asyncio.sleep(0.3)
    ucp.progress()
    assert ep._ep.is_alive() is not error_handling
    await ep.close()
    assert ("UCX failed closing worker" in caplog.text and "[Send shutdown]" in caplog.text) is not error_handling
    listener.close()
