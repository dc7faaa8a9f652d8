"""UCX-Py programs: connecting, listeners, contexts of threads and forked processes. TIMEOUT: 240"""

import asyncio
import gc
import socket
import subprocess
import sys
import threading
import time

import pytest
from ucp_support import connected, event_loop_policy, fresh_ucp, mp  # noqa: F401

import ucp
from hawser import ucxx


@pytest.mark.parametrize("tag", ["7", 7.5, None])
async def test_a_tag_that_is_used_as_it_is_must_be_a_number(tag):
    ep = await ucp.create_endpoint_from_worker_address(ucp.get_worker_address())
    with pytest.raises(TypeError, match="tag: an int is needed"):
        await ucp.recv(bytearray(1), tag)
    if tag is not None:  # which stands for the endpoint's own
        for call in (ep.send(b"x", tag=tag, force_tag=True), ep.recv(bytearray(1), tag=tag, force_tag=True)):
            with pytest.raises(TypeError, match="tag: an int is needed"):
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
