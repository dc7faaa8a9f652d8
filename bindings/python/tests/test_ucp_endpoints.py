"""UCX-Py programs: connecting, closing, configuration. TIMEOUT: 300"""

import asyncio
import copy
import gc
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from unittest import mock

import pytest
from ucp_support import connected, event_loop_policy, fresh_ucp, mp  # noqa: F401

import ucp
from hawser import ErrorCode, HawserError, ucxx
from hawser import ucp as hawser_ucp


def test_one_module_by_two_names():
    assert ucp is hawser_ucp
    assert sys.modules["ucp.core"] is sys.modules["hawser.ucp.core"]
    import ucp._libs.ucx_api as api

    assert api is ucp.ucx_api
    from ucp._version import __version__
    from ucp.benchmarks.utils import run_cluster_server

    assert ucp.__version__ == __version__ and sys.modules[run_cluster_server.__module__] is ucp.benchmarks.utils


def test_nothing_is_opened_early():
    assert ucp.core._ctx is None
    assert len(ucp.get_ucx_version()) == 3
    assert ucp.get_config()["TLS"] == os.environ.get("UCX_TLS", "all")
    assert ucp.__ucx_version__ == "{}.{}.{}".format(*ucp.get_ucx_version())
    assert isinstance(ucp.__version__, str) and isinstance(ucp.__git_commit__, str)
    assert ucp.core._ctx is None


def test_options():
    options = {"SEG_SIZE": "3M"}
    ucp.init(options)
    assert ucp.get_config()["SEG_SIZE"] == "3M"
    with pytest.raises(RuntimeError, match="already"):
        ucp.init()
    ucp.reset()
    with mock.patch.dict(os.environ, {"UCX_SEG_SIZE": "4M"}):
        assert ucp.get_config()["SEG_SIZE"] == "4M"
        ucp.init(options)
        assert ucp.get_config()["SEG_SIZE"] == "3M"
        ucp.reset()
        ucp.init(options, env_takes_precedence=True)
        assert ucp.get_config()["SEG_SIZE"] == "4M"
        assert options == {"SEG_SIZE": "3M"}
        ucp.reset()
    with pytest.raises(ucp.exceptions.UCXConfigError, match="SEG_SIZE to invalid-size: Invalid parameter"):
        ucp.init({"SEG_SIZE": "invalid-size"})
    with mock.patch.dict(os.environ, {"UCX_SEG_SIZE": "invalid-size"}):
        with pytest.raises(ucp.exceptions.UCXConfigError, match="Invalid parameter"):
            ucp.init()


@pytest.mark.parametrize("key", ["NO_SUCH_OPTION", "SOCKADDR_TLS_PRIORITY"])
def test_a_refused_option_is_named(key):
    with pytest.raises(ucp.exceptions.UCXConfigError, match=f"{key}.* nonsense|{key}.*'nonsense'"):
        ucp.init({key: "nonsense"})


@pytest.mark.parametrize("seconds", ["nan", "five"])
def test_a_connect_timeout_that_is_none(seconds, monkeypatch):
    monkeypatch.setenv("UCXPY_CONNECT_TIMEOUT", seconds)
    with pytest.raises(ValueError, match=f"UCXPY_CONNECT_TIMEOUT.*{seconds}"):
        ucp.init()
    ucp.init(connect_timeout=5)


@pytest.mark.parametrize("tag", ["7", 7.5, None])
async def test_a_tag_that_is_used_as_it_is_must_be_a_number(tag):
    ep = await ucp.create_endpoint_from_worker_address(ucp.get_worker_address())
    with pytest.raises(TypeError, match="integer"):
        await ucp.recv(bytearray(1), tag)
    if tag is not None:  # which stands for the endpoint's own
        for call in (ep.send(b"x", tag=tag, force_tag=True), ep.recv(bytearray(1), tag=tag, force_tag=True)):
            with pytest.raises(TypeError, match="integer"):
                await call
    ep.abort()


async def test_a_host_that_there_is_not():
    """As the socket module says it, which UCX-Py asks."""
    with pytest.raises(socket.gaierror):
        await ucp.create_endpoint("no.such.host.invalid", 1)


@pytest.mark.parametrize("port", [-5, 65536, 70000])
async def test_a_port_that_is_none(port):
    with pytest.raises(OverflowError):
        await ucp.create_endpoint("127.0.0.1", port)
    with pytest.raises(OverflowError):
        ucp.create_listener(print, port)


def test_logging():
    lines = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("ucx")
    logger.addHandler(handler)
    level = logger.level
    try:
        logger.setLevel(logging.INFO)
        ucp.init({"SEG_SIZE": "3M"})
        assert any("SEG_SIZE" in line for line in lines)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("module", [ucp, ucxx], ids=["ucp", "ucxx"])
async def test_debug_logging(module, caplog):
    """What becomes of connections is told at debug level, by the number that names the endpoint."""
    logger = logging.getLogger("ucx")
    logger.addHandler(caplog.handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        met = asyncio.get_running_loop().create_future()
        listener = module.create_listener(met.set_result)
        client = await module.create_endpoint("127.0.0.1", listener.port)
        server = await met
        by_address = await module.create_endpoint_from_worker_address(module.get_worker_address())
        by_address.abort()
        uids = [hex(ep.uid) for ep in (client, server, by_address)]
        await client.close()
        ended = server.closed if module is ucp else lambda: server.closed
        while not ended():
            await asyncio.sleep(0.01)
        server.abort()
        listener.close()
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(level)
        module.reset()
    assert f"create_endpoint() client: {uids[0]}, error handling: True, msg-tag-send: 0x" in caplog.text
    assert f"_listener_handler() server: {uids[1]}, error handling: True, msg-tag-send: 0x" in caplog.text
    assert f"create_endpoint_from_worker_address() client: {uids[2]}, error handling: True" in caplog.text
    assert all(f"Endpoint.abort(): {uid}" in caplog.text for uid in uids)
    if module is ucp:
        assert f"[Send shutdown] ep: {uids[0]}" in caplog.text and f"[Recv shutdown] ep: {uids[1]}" in caplog.text
    else:
        assert f"Endpoint {uids[1]}: the connection ended: " in caplog.text


@pytest.mark.parametrize("transports", ["sysv", "posix", "tcp", "all"])
def test_information(transports):
    ucp.init({"TLS": transports})
    assert "transport" in ucp.get_ucp_context_info() or "resource" in ucp.get_ucp_context_info()
    assert isinstance(ucp.get_ucp_worker_info(), str)
    found = ucp.get_active_transports()
    assert any(name.startswith(transports) for name in found) or (transports == "all" and found)
    assert isinstance(ucp.get_ucp_worker(), int)


@pytest.mark.parametrize("module", [ucp, ucxx], ids=["ucp", "ucxx"])
@pytest.mark.parametrize("transports, tcp", [("posix", False), ("^tcp", False), ("all", True), ("sysv,tcp", True)])
def test_transports_that_are_left_out(module, transports, tcp):
    """Connections begin by TCP all the same, but no message goes that way."""
    module.reset()
    module.init({"TLS": transports})
    active = module.get_active_transports()
    assert {"sysv", "posix"} & active and ("tcp" in active) is tcp
    module.reset()


def test_get_address():
    assert ucp.get_address().count(".") == 3
    with pytest.raises(OSError):
        ucp.get_address("nonsense0")
    with mock.patch.dict(os.environ, {"UCXPY_IFNAME": "lo"}):
        assert ucp.get_address() == "127.0.0.1"


async def test_handles():
    listener, client = await connected(lambda ep: None)
    assert isinstance(client.uid, int) and client.get_ucp_endpoint() == client.uid
    assert isinstance(client.get_ucp_worker(), int)
    assert client.ucx_info()
    assert isinstance(client.cuda_support(), bool)
    assert isinstance(listener.ip, str)
    await client.close()
    assert client.closed() and isinstance(client.uid, int)
    assert not listener.closed()
    listener.close()
    listener.close()
    assert listener.closed()


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


async def test_listener_goes_endpoints_stay():
    async def echo(ep):
        into = bytearray(10)
        await ep.recv(into)
        await ep.send(into)

    for how in ("close", "del"):
        listener, client = await connected(echo)
        if how == "close":
            listener.close()
            assert listener.closed()
        del listener
        await client.send(b"0123456789")
        into = bytearray(10)
        await client.recv(into)
        assert into == b"0123456789"
        await client.close()


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


async def test_reset_is_refused_while_something_is_open():
    def server(ep):
        ep.abort()

    listener = ucp.create_listener(server)
    with pytest.raises(ucp.exceptions.UCXError, match="Trying to reset UCX"):
        ucp.reset()
    listener.close()
    ucp.reset()
    listener, client = await connected(server)
    listener.close()
    with pytest.raises(ucp.exceptions.UCXError, match="Trying to reset UCX"):
        ucp.reset()
    client.abort()
    await asyncio.sleep(0.05)
    ucp.reset()


def test_reset_lets_the_other_end_finish():
    """What a stopped loop has not run yet may hold an endpoint: reset() outside of a loop runs it."""
    loop = asyncio.new_event_loop()

    async def server(ep):
        await ep.recv(bytearray(1))
        await asyncio.sleep(0.05)
        await ep.close()

    async def main():
        _, client = await connected(server)
        await client.send(b"1")

    loop.run_until_complete(main())
    ucp.reset()
    listener = loop.run_until_complete(connected(server))
    with pytest.raises(ucp.exceptions.UCXError, match="Trying to reset UCX"):
        ucp.reset()
    del listener
    ucp.reset()
    loop.close()


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


async def test_many_clients():
    async def hello(ep):
        message = bytearray(5)
        await ep.recv(message)
        await ep.send(message)
        await ep.close()

    async def client(port):
        ep = await ucp.create_endpoint(ucp.get_address(), port)
        message = bytearray(5)
        await ep.send(b"hello")
        await ep.recv(message)
        assert message == b"hello"
        await ep.close()

    listeners = [ucp.create_listener(hello) for _ in range(2)]
    await asyncio.gather(*(client(listener.port) for listener in listeners for _ in range(10)))
    for listener in listeners:
        listener.close()


async def test_connect_timeout_counts_for_each(monkeypatch):
    """A burst of connections takes longer than the time that one of them is given."""

    async def server(ep):
        await ep.recv(bytearray(1))

    ucp.init(connect_timeout=2)
    under_way, most = 0, 0
    inner = ucp.ApplicationContext._connect

    async def counted(self, *args):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        try:
            return await inner(self, *args)
        finally:
            under_way -= 1

    monkeypatch.setattr(ucp.ApplicationContext, "_connect", counted)
    listener = ucp.create_listener(server)
    clients = await asyncio.gather(*(ucp.create_endpoint(ucp.get_address(), listener.port) for _ in range(100)))
    assert len({ep.uid for ep in clients}) == 100 and 1 < most <= 32
    for ep in clients:
        await ep.send(b"1")
        await ep.close()
    listener.close()


async def test_nobody_listens():
    with pytest.raises((ucp.exceptions.UCXBaseException, asyncio.TimeoutError)):
        await ucp.create_endpoint("127.0.0.1", 1)


async def test_connect_timeout():
    ucp.init(connect_timeout=0.2)
    assert ucp.core._ctx.connect_timeout == 0.2
    import socket

    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises((asyncio.TimeoutError, ucp.exceptions.UCXBaseException)),
    ):
        await ucp.create_endpoint("127.0.0.1", silent.getsockname()[1])


@pytest.mark.parametrize("module", [ucp, ucxx])
async def test_a_listener_serves_in_its_own_loop(module):
    """Another thread's loop may be the one that meets a peer, as it waits."""
    served = []

    def clients():
        async def connect(port):
            for _ in range(10):
                await (await module.create_endpoint("127.0.0.1", port)).close()

        asyncio.run(connect(listener.port))

    listener = module.create_listener(lambda ep: served.append((threading.get_ident(), ep.abort())))
    await asyncio.to_thread(clients)
    while len(served) < 10:
        await asyncio.sleep(0.005)
    assert {thread for thread, _ in served} == {threading.get_ident()}
    listener.close()
    module.reset()


async def test_several_contexts():
    first, second = ucp.ApplicationContext(), ucp.ApplicationContext()
    done = asyncio.get_running_loop().create_future()

    async def server(ep):
        message = bytearray(2)
        await ep.recv(message)
        done.set_result(bytes(message))
        await ep.close()

    listener = first.create_listener(server)
    ep = await second.create_endpoint(ucp.get_address(), listener.port)
    await ep.send(b"ok")
    assert await done == b"ok"
    await ep.close()
    listener.close()


@pytest.mark.parametrize("context", [ucp.ApplicationContext, ucxx.core.ApplicationContext])
def test_connected_contexts_that_are_dropped(context):
    """The end of one does not wait for the other, whose loop stands still."""

    async def meet(first, second):
        accepted = asyncio.get_running_loop().create_future()
        listener = first.create_listener(accepted.set_result)
        return [listener, await second.create_endpoint("127.0.0.1", listener.port), await accepted]

    contexts = [context(), context()]
    with asyncio.Runner() as runner:
        ends = runner.run(meet(*contexts))
        start = time.monotonic()
        ends.clear()
        while contexts:
            contexts.pop()
            gc.collect()
        assert time.monotonic() - start < 2


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


_FORKING = """
import asyncio, os, sys, ucp
async def main():
    listener = ucp.create_listener(lambda ep: None)
    ep = await ucp.create_endpoint("127.0.0.1", listener.port)
    child = os.fork()
    if child == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    await ep.close()
    listener.close()
asyncio.run(main())
"""


_FORKING_FIRST = """
import asyncio, os, ucp
async def main():
    met = asyncio.get_running_loop().create_future()
    listener = ucp.create_listener(met.set_result)
    ep = await ucp.create_endpoint("127.0.0.1", listener.port)
    await ep.send(b"hello")
    message = bytearray(5)
    await (await met).recv(message)
    await ep.close()
    listener.close()
ucp.get_ucx_version(), ucp.get_config()
child = os.fork()
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
asyncio.run(main())
"""


def test_child_of_who_has_only_asked():
    """UCX is opened at the first use: a program may import the module, and ask, before it forks."""
    done = subprocess.run([sys.executable, "-c", _FORKING_FIRST], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_child_that_exits_says_nothing():
    """A child has no part in the connections of its parent, and what it inherited of them is no trouble at its end."""
    done = subprocess.run([sys.executable, "-c", _FORKING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_that_come_first_share_one_context(monkeypatch):
    made = []

    class Slow(ucp.core.ApplicationContext):
        def __init__(self, *args):
            made.append(self)
            time.sleep(0.05)
            super().__init__(*args)

    monkeypatch.setattr(ucp.core, "ApplicationContext", Slow)
    threads = [threading.Thread(target=ucp.get_ucp_worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    made.clear()


@pytest.mark.parametrize(("level", "said"), [("INFO", True), ("error", False)])
def test_log_level_of_the_environment(level, said):
    program = "import ucp; ucp.init({'SEG_SIZE': '3M'})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "UCXPY_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert ("UCXPY  INFO   SEG_SIZE: 3M" in done.stderr) == said


def test_contexts_are_not_copied():
    context = ucp.ApplicationContext()
    with pytest.raises(TypeError, match="copied"):
        copy.copy(context)
