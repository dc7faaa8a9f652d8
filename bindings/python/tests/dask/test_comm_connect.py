# TIMEOUT: 240
"""Listeners and connectors: addresses, who is let in, and what those are told who are not."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from dask_support import comm_pair, has_ipv6, until
from distributed.comm import CommClosedError, connect, listen
from distributed.comm.core import FatalCommClosedError
from distributed.comm.core import connect as core_connect
from distributed.comm.registry import get_backend
from distributed.protocol import to_serialize

import hawser
from hawser.dask import HawserComm, _connector, _listener, _workers

pytestmark = [pytest.mark.usefixtures("comms")]


async def test_a_name_with_ipv6_addresses_only(monkeypatch):
    if not has_ipv6():
        pytest.skip("IPv6 needs UCX 1.14 and an IPv6 address on this machine")

    async def resolve(host, port, **kwargs):
        assert host == "only6.example"
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0))]

    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    async with listen("ucx://[::1]", handle) as listener:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        port = listener.contact_address.rpartition(":")[2]
        a = await connect(f"ucx://only6.example:{port}")
        b = await accepted
        await a.write("by name")
        assert await b.read() == "by name"
        await asyncio.gather(a.close(), b.close())


@pytest.mark.parametrize(
    "address",
    ["ucx://127.0.0.1", "ucx://", "ucx://:0", "ucx://0.0.0.0", "ucx://localhost", "ucx://[::1]"],
)
async def test_clients(address):
    if "[" in address and not has_ipv6():
        pytest.skip("IPv6 needs UCX 1.14 and an IPv6 address on this machine")

    async def handle(comm):
        while True:
            try:
                message = await comm.read()
            except CommClosedError:
                return
            message["op"] = "pong"
            await comm.write(message)

    async with listen(address, handle, xxx="ignored") as listener:
        assert listener.listen_address.startswith("ucx://")
        assert "//:" not in listener.contact_address and "0.0.0.0" not in listener.contact_address

        async def ask(i):
            comm = await connect(listener.contact_address, yyy="ignored")
            assert comm.peer_address == listener.contact_address
            await comm.write({"op": "ping", "i": i})
            assert await comm.read() == {"op": "pong", "i": i}
            await comm.close()

        await ask(0)
        await asyncio.gather(*map(ask, range(20)))


async def test_many_listeners():
    async def handle(comm):
        pass

    listeners = [await listen("ucx://127.0.0.1", handle) for _ in range(100)]
    assert len({x.listen_address for x in listeners}) == 100
    assert len({x.contact_address for x in listeners}) == 100
    for x in listeners:
        x.stop()


async def test_handler_that_returns_at_once():
    async def handle(comm):
        await comm.close()

    async with listen("ucx://127.0.0.1", handle) as listener:
        comm = await connect(listener.contact_address)
        with pytest.raises(CommClosedError):
            await comm.write({})
            await comm.read()
        comm = await connect(listener.contact_address)
        with pytest.raises(CommClosedError):
            await comm.read()


@pytest.mark.parametrize("where", ["listener", "connector"])
async def test_a_peer_that_leaves_as_soon_as_it_is_connected(monkeypatch, caplog, where):
    """Then it has no addresses any more; the one who connects is told, as by a reset."""
    seen = []

    def make(endpoint, *args):
        seen.append(endpoint)
        if len(seen) == 1:
            about = {**endpoint.info(), "local_address": "", "peer_address": ""}
            endpoint.info = lambda: about
        return HawserComm(endpoint, *args)

    async def echo(comm):
        await comm.write(await comm.read())

    monkeypatch.setattr({"listener": _listener, "connector": _connector}[where], "HawserComm", make)
    async with listen("ucx://127.0.0.1:0", echo) as listener:
        with pytest.raises(CommClosedError):
            await connect(listener.contact_address, timeout=30)
        comm = await connect(listener.contact_address)
        await comm.write("x")
        assert await comm.read() == "x"
        await comm.close()
        await until(lambda: not any(endpoint.connected for endpoint in seen))
    assert len(seen) == 2
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_connection_that_is_reset_is_not_tried_again():
    """A killed process takes connections in until its memory is freed: over tcp the first message fails at once."""
    came = []

    def reset(reader, writer):
        came.append(writer)
        writer.transport.abort()

    async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(CommClosedError, match="CONNECTION_RESET"):
            await connect(f"ucx://127.0.0.1:{port}", timeout=30)
    assert 1 <= len(came) <= 2


async def test_stop_keeps_connections():
    async with comm_pair() as (a, b):
        pass
    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    async with listen("ucx://127.0.0.1", handle) as listener:
        address = listener.contact_address
        a = await connect(address)
        b = await accepted
    with pytest.raises(OSError):
        await connect(address, timeout=0.3)
    await a.write("x")
    assert await b.read() == "x"
    await asyncio.gather(a.close(), b.close())


async def test_nobody_listens():
    start = time.monotonic()
    with pytest.raises(IOError):
        await core_connect("ucx://127.0.0.1:44567", timeout=0.15)
    assert 0.1 <= time.monotonic() - start < 1.5


@pytest.mark.parametrize("port", [-1, 65536])
async def test_a_port_that_is_none(port):
    async def handle(comm):
        pass

    with pytest.raises(OSError, match="0 to 65535"):
        await listen(f"ucx://127.0.0.1:{port}", handle)
    with pytest.raises(FatalCommClosedError, match="0 to 65535"):
        await core_connect(f"ucx://127.0.0.1:{port}", timeout=5)


LISTENER = """
import asyncio, hawser

async def main():
    async with hawser.listen(host="127.0.0.1") as listener:
        print(listener.port, flush=True)
        async for _ in listener:
            pass

asyncio.run(main())
"""


async def test_another_version_of_ucx(monkeypatch):
    """It is told, though not at once: a peer that is short of descriptors looks the same for a while."""
    monkeypatch.setattr(_connector, "_SHORTAGE", 1.0)
    environment = os.environ | {"HAWSER_UCX": "wheel" if hawser.library()["ucx_minor"] == 13 else "system"}
    with subprocess.Popen([sys.executable, "-c", LISTENER], stdout=subprocess.PIPE, text=True, env=environment) as peer:
        try:
            port = int(peer.stdout.readline())
            start = time.monotonic()
            with pytest.raises(FatalCommClosedError, match="PeerVersionError"):
                await core_connect(f"ucx://127.0.0.1:{port}", timeout=60)
            assert 1 <= time.monotonic() - start < 30
        finally:
            peer.kill()


WAITS = """
import asyncio, logging, sys
from distributed.comm import connect

logging.basicConfig(format="%(message)s")

async def main():
    for _ in range(2):
        try:
            await connect(sys.argv[1], timeout=1)
        except OSError:
            pass

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_device_that_does_not_lead_there_is_told_of_once():
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True).stdout.split()
    host = next((address for address in addresses if "." in address), None)
    if host is None:
        pytest.skip("this machine has no address but the loopback one")
    async with listen(f"ucx://{host}:0", lambda comm: None) as listener:
        address = listener.contact_address
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WAITS, address),
            env={**os.environ, "UCX_NET_DEVICES": "lo"},
            stderr=subprocess.PIPE,
        )
        _, said = await asyncio.wait_for(child.communicate(), 60)
    told = [line for line in said.decode().splitlines() if "no transport reaches the peer" in line]
    assert len(told) == 1 and "UCX_NET_DEVICES=lo" in told[0] and address in told[0], said


async def test_address_in_use():
    import errno

    async def handle(comm):
        pass

    async with listen("ucx://127.0.0.1", handle) as listener:
        with pytest.raises(OSError) as e:
            await listen(listener.listen_address, handle)
        assert e.value.errno == errno.EADDRINUSE


async def test_encryption_is_refused():
    async def handle(comm):
        pass

    with pytest.raises(RuntimeError, match="encryption"):
        await listen("ucx://127.0.0.1", handle, require_encryption=True)
    async with listen("ucx://127.0.0.1", handle) as listener:
        with pytest.raises(RuntimeError, match="encryption"):
            await connect(listener.contact_address, require_encryption=True)


def test_backend_addresses():
    backend = get_backend("ucx")
    assert backend.resolve_address("localhost:1") == "127.0.0.1:1"
    assert backend.get_address_host("127.0.0.1:80") == "127.0.0.1"
    assert backend.get_address_host_port("[::1]:80") == ("::1", 80)
    assert backend.get_local_address_for("127.0.0.1:80") == "127.0.0.1"
    assert backend.get_local_address_for("[::1]:80") == "[::1]"


def test_many_loops_and_threads():
    """Each thread has a loop of its own; they talk in themselves at the same time."""
    failures = []

    async def talk():
        async with comm_pair() as (a, b):
            for i in range(50):
                _, message = await asyncio.gather(a.write({"x": to_serialize(np.full(20_000, i))}), b.read())
                assert (message["x"] == i).all()

    def run():
        try:
            asyncio.run(asyncio.wait_for(talk(), 60))
        except BaseException as e:
            failures.append(e)

    # The last one shows that workers of loops that are gone go when the next loop comes. It has a thread too: in this
    # one asyncio.run() would drop the loop that pytest-asyncio leaves here, without closing it.
    for count in (6, 1):
        threads = [threading.Thread(target=run) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
    assert len(_workers._workers) <= 2
