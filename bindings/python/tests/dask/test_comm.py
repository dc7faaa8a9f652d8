# TIMEOUT: 120
"""The contract of a comm: messages, addresses, and how it ends."""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from dask_support import comm_pair, has_ipv6, spawned, until
from distributed.comm import CommClosedError, connect, listen
from distributed.comm.core import FatalCommClosedError
from distributed.comm.core import connect as core_connect
from distributed.comm.registry import get_backend
from distributed.protocol import Serialized, deserialize, to_serialize

import hawser
from hawser.dask import HawserBackend, HawserComm, UCXBackend, _connector, _listener, _pool, _workers

pytestmark = [pytest.mark.usefixtures("comms")]


def test_schemes_are_registered():
    assert type(get_backend("ucx")) is UCXBackend
    assert type(get_backend("hawser")) is HawserBackend


@pytest.mark.parametrize("scheme", ["ucx", "hawser"])
async def test_addresses_and_repr(scheme):
    async with comm_pair(f"{scheme}://127.0.0.1") as (a, b):
        assert a.peer_address == b.local_address
        assert a.local_address == b.peer_address
        assert a.local_address.startswith(f"{scheme}://127.0.0.1:")
        assert a.same_host and b.same_host
        assert a.local_address in repr(a) and "closed" not in repr(a)
        await a.close()
        assert "closed" in repr(a)


async def test_round_trips():
    async with comm_pair() as (a, b):
        for message in ["x", {"op": "ping", "n": 1}, {}, ({"a": 1},) * 100, {"x": "y" * 10_000_000}]:
            sending = asyncio.ensure_future(a.write(message))
            assert await b.read() == message
            assert await sending > 0
            assert await asyncio.gather(b.write(message), a.read()) == [sending.result(), message]


@pytest.mark.parametrize("n", [0, 1, 100, 5_000, 100_000, 3_000_000, 20_000_000])
async def test_arrays(n):
    x = np.random.default_rng(0).integers(0, 255, n, dtype="u1")
    async with comm_pair() as (a, b):
        _, message = await asyncio.gather(a.write({"x": to_serialize(x), "after": 1}), b.read())
        assert message["after"] == 1
        np.testing.assert_array_equal(message["x"], x)
        assert message["x"].flags.writeable


async def test_messages_of_very_many_frames():
    message = {i: to_serialize(i) for i in range(40_000)}
    async with comm_pair() as (a, b):
        _, got = await asyncio.gather(a.write(message), b.read())
        assert got == {i: i for i in range(40_000)}


async def test_a_loop_that_computes_loses_no_connection():
    """Longer than a lost peer takes to be noticed, with data on its way."""
    x = np.arange(30_000_000)
    async with comm_pair() as (a, b):
        both = asyncio.gather(a.write(to_serialize(x)), b.read())
        await asyncio.sleep(0.02)
        time.sleep(4)
        _, got = await both
        np.testing.assert_array_equal(got, x)


async def test_order_is_kept_when_small_and_large_alternate():
    async with comm_pair() as (a, b):

        async def write():
            for i in range(40):
                await a.write({"i": i, "x": to_serialize(np.full(10 if i % 2 else 400_000, i))})

        writing = asyncio.ensure_future(write())
        for i in range(40):
            message = await b.read()
            assert message["i"] == i and (message["x"] == i).all()
        await writing


async def test_buffers_have_memory_of_their_own():
    """Each array of a message can be freed alone."""
    x, y = np.arange(1_000_000), np.arange(2_000_000)
    async with comm_pair() as (a, b):
        _, message = await asyncio.gather(a.write({"x": to_serialize(x), "y": to_serialize(y)}), b.read())
    x, y = message["x"], message["y"]
    assert not np.shares_memory(x, y)
    before = _pool._pool.outstanding
    del message, x

    def freed():
        _pool._pool.expire()
        return before - _pool._pool.outstanding >= 8_000_000

    await until(freed)  # Dask's offloading thread may still hold what it made last
    np.testing.assert_array_equal(y, np.arange(2_000_000))


async def test_small_buffers_are_arrays_too():
    """As over tcp, their memory knows its size; each has its own."""
    from distributed.protocol.utils_test import get_host_array

    async with comm_pair() as (a, b):
        await a.write({"data": to_serialize([np.array([1, 2]), np.array([3, 4])])})
        x, y = (await b.read())["data"]
    memory = get_host_array(x), get_host_array(y)
    assert memory[0] is not memory[1]
    assert [m.nbytes for m in memory] == [x.nbytes, y.nbytes]
    x += 1
    assert x.tolist() == [2, 3] and y.tolist() == [3, 4]


async def test_large_arrays_are_received_in_place(monkeypatch):
    """What UCX wrote to is what the user gets, also above Dask's 64 MiB."""
    from hawser.dask import _comm

    received = []

    def take(n):
        received.append(np.empty(n, "u1"))
        return received[-1].data

    monkeypatch.setattr(_comm, "take", take)
    x = np.arange(10_000_000.0)  # 80 MB
    async with comm_pair() as (a, b):
        _, message = await asyncio.gather(a.write({"x": to_serialize(x)}), b.read())
    assert max(array.nbytes for array in received) == x.nbytes
    assert any(np.shares_memory(message["x"], array) for array in received)
    np.testing.assert_array_equal(message["x"], x)


async def test_deserialize_flag():
    x = np.arange(100_000)
    off = {"deserialize": False}
    async with comm_pair(listen_args=off) as (a, b):
        _, message = await asyncio.gather(a.write({"x": to_serialize(x)}), b.read())
        assert isinstance(message["x"], Serialized)
        np.testing.assert_array_equal(deserialize(message["x"].header, message["x"].frames), x)
        # What was not decoded passes through.
        _, back = await asyncio.gather(b.write(message), a.read())
        np.testing.assert_array_equal(back["x"], x)


async def test_a_write_does_not_wait_for_a_reader():
    """As over tcp: one coroutine may write and then read; what exceeds `write-ahead` waits."""
    x = np.arange(1_000_000)
    for deserialized in (True, False):
        options = {"deserialize": deserialized}
        async with comm_pair(listen_args=options, connect_args=options) as (a, b):
            for _ in range(3):
                await asyncio.wait_for(a.write({"x": to_serialize(x), "bytes": bytes(4_000_000)}), 20)
            for _ in range(3):
                await b.write(await b.read())
            for _ in range(3):
                message = await a.read()
                assert isinstance(message["x"], np.ndarray if deserialized else Serialized)
                assert len(message["bytes"]) == 4_000_000
            assert a._unsent == 0
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(a.write({"x": to_serialize(np.zeros(100_000_000, "u1"))}), 0.3)


async def test_what_was_written_arrives_when_it_is_closed_at_once():
    x = np.arange(2_000_000)
    async with comm_pair() as (a, b):
        await a.write({"x": to_serialize(x)})
        closing = asyncio.ensure_future(a.close())
        await asyncio.sleep(0.05)
        np.testing.assert_array_equal((await b.read())["x"], x)
        await closing
        with pytest.raises(CommClosedError):
            await b.read()


async def test_a_write_that_nobody_reads_ends_with_its_peer():
    async with comm_pair() as (a, b):
        await a.write({"x": to_serialize(np.zeros(8_000_000, "u1"))})
        b.abort()
        await until(a.closed)
        await until(lambda: a._unsent == 0)
        with pytest.raises(CommClosedError):
            await a.write("x")


@pytest.mark.parametrize("n", [100, 100_000, 3_000_000])
async def test_what_was_written_arrives_after_an_abort(n):
    x = np.random.default_rng(0).integers(0, 255, n, dtype="u1")
    async with comm_pair() as (a, b):
        for i in range(3):
            await a.write({"x": to_serialize(x), "i": i})
        a.abort()
        assert a.closed()
        for i in range(3):
            message = await b.read()
            assert message["i"] == i
            np.testing.assert_array_equal(message["x"], x)
        with pytest.raises(CommClosedError):
            await b.read()


async def test_a_cancelled_write_does_not_arrive():
    async with comm_pair() as (a, b):
        a._ahead = 0
        write = asyncio.ensure_future(a.write({"x": to_serialize(np.zeros(8_000_000, "u1"))}))
        await asyncio.sleep(0.05)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert a.closed()
        with pytest.raises(CommClosedError):
            await b.read()


class _Truncated:
    def __reduce__(self):
        return _raise_eof, ()


def _raise_eof():
    raise EOFError


async def test_eof_while_unpickling_closes():
    async with comm_pair() as (a, b):
        await a.write({"x": to_serialize(_Truncated())})
        with pytest.raises(CommClosedError):
            await b.read()
        assert b.closed()


async def test_what_cannot_be_serialized_leaves_it_open():
    async with comm_pair() as (a, b):
        with pytest.raises((TypeError, pickle.PicklingError, AttributeError)):
            await a.write({"x": to_serialize(threading.Lock())}, on_error="raise")
        await a.write("still here")
        assert await b.read() == "still here"


# ---- Ending ----


async def test_close_ends_pending_reads_on_both_sides():
    async with comm_pair() as (a, b):
        reads = [asyncio.ensure_future(a.read()), asyncio.ensure_future(b.read())]
        await asyncio.sleep(0.02)
        await a.close()
        for read in reads:
            with pytest.raises(CommClosedError):
                await asyncio.wait_for(read, 5)
        for comm in (a, b):
            assert comm.closed()
            with pytest.raises(CommClosedError):
                await comm.read()
            with pytest.raises(CommClosedError):
                await comm.write("x")


async def test_messages_before_a_close_are_delivered():
    async with comm_pair() as (a, b):
        for i in range(10):
            await a.write(i)
        await a.close()
        await until(b.closed)
        assert [await b.read() for _ in range(10)] == list(range(10))
        with pytest.raises(CommClosedError):
            await b.read()


async def test_closed_flips_without_reading():
    async with comm_pair() as (a, b):
        assert not b.closed()
        await a.close()
        await until(b.closed)
    async with comm_pair() as (a, b):
        a.abort()
        assert a.closed()
        a.abort()
        await until(b.closed)


async def test_write_while_a_read_is_pending():
    async with comm_pair() as (a, b):
        read = asyncio.ensure_future(a.read())
        await asyncio.sleep(0.01)
        await a.write("question")
        assert await b.read() == "question"
        await b.write("answer")
        assert await read == "answer"


async def test_timeout_of_a_read_is_the_original_one():
    async with comm_pair() as (a, b):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(a.read(), 0.01)
        assert a.closed()
        await until(b.closed)


async def test_cancel_of_a_read_is_the_original_one():
    async with comm_pair() as (a, b):
        read = asyncio.ensure_future(a.read())
        await asyncio.sleep(0.01)
        read.cancel()
        with pytest.raises(asyncio.CancelledError):
            await read
        assert a.closed()


async def test_cancel_of_a_write_is_the_original_one():
    async with comm_pair() as (a, b):
        write = asyncio.ensure_future(a.write({"x": to_serialize(np.zeros(100_000_000, "u1"))}))
        await asyncio.sleep(0.2)
        assert not write.done()  # nobody reads
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert a.closed()
        await until(b.closed)


async def test_close_is_bounded_when_the_peer_does_not_read(monkeypatch):
    monkeypatch.setattr("hawser.dask._connector.close_timeout", lambda: 1.0)
    async with comm_pair() as (a, b):
        write = asyncio.ensure_future(a.write({"x": to_serialize(np.zeros(100_000_000, "u1"))}))
        await asyncio.sleep(0.1)
        start = time.monotonic()
        await a.close()
        await a.close()
        assert time.monotonic() - start < 3
        with pytest.raises(CommClosedError):
            await write


async def test_an_abort_ends_the_write_that_waits():
    async with comm_pair() as (a, b):
        write = asyncio.ensure_future(a.write({"x": to_serialize(np.zeros(200_000_000, "u1"))}))
        await asyncio.sleep(0.2)
        assert not write.done()  # nobody reads
        start = time.monotonic()
        a.abort()
        with pytest.raises(CommClosedError):
            await write
        assert time.monotonic() - start < 2
        await until(b.closed)


@pytest.mark.parametrize("n", [100_000, 1_000_000])
async def test_what_was_sent_waits_for_a_peer_that_is_busy(n):
    """For longer than a goodbye alone: over tcp the kernel has it."""
    with spawned(_be_busy, n) as (pipe, _):
        comm = await connect(pipe.recv())
        assert pipe.recv() == "connected"
        await comm.write({"x": to_serialize(np.ones(n, "u1"))})
        await comm.close()
        assert await asyncio.to_thread(pipe.recv) == n


async def test_a_close_that_is_cancelled_goes_on():
    """As over tcp, where the kernel has what was written."""
    async with comm_pair() as (a, b):
        await a.write({"x": to_serialize(np.ones(1_000_000, "u1"))})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(a.close(), 0.2)
        assert a.closed() and not b.closed()
        assert (await b.read())["x"].sum() == 1_000_000
        await until(b.closed)


def _be_busy(pipe, n):
    async def handle(comm):
        pipe.send("connected")
        time.sleep(6)
        pipe.send(int((await comm.read())["x"].sum()))
        await comm.close()

    async def main():
        async with listen("ucx://127.0.0.1", handle) as listener:
            pipe.send(listener.contact_address)
            await asyncio.sleep(8)

    asyncio.run(main())


def _be_killed(pipe, address):
    async def main():
        comm = await connect(address)
        pipe.send("connected")
        await comm.read()

    asyncio.run(main())


async def test_closed_flips_when_the_peer_is_killed():
    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    async with listen("ucx://127.0.0.1", handle) as listener:
        with spawned(_be_killed, listener.contact_address) as (_, process):
            comm = await asyncio.wait_for(accepted, 30)
            assert not comm.closed()
            process.kill()
            await until(comm.closed)
            with pytest.raises(CommClosedError):
                await comm.read()


# ---- Listening and connecting ----


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


@pytest.mark.parametrize("n", [1000, 100_000, 3_000_000])
async def test_a_batch_is_as_it_was_written(n):
    """What a program submits may be changed by it afterwards."""
    x = np.full(n, 7, "u1")
    async with comm_pair() as (a, b):
        await a.write([{"x": to_serialize(x)}])
        await asyncio.sleep(0.05)
        x[:] = 9
        (message,) = await b.read()
        assert (message["x"] == 7).all() and len(message["x"]) == n


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
