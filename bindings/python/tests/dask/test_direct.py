# TIMEOUT: 120
"""Large buffers that a peer on this machine reads where they are."""

import asyncio
import contextlib
import ctypes
import errno
import gc
import os
import struct
import sys
import threading
import types

import dask
import numpy as np
import pytest
from dask_support import comm_pair, spawned, until
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

from hawser.dask import _direct, _workers

pytestmark = [pytest.mark.skipif(_direct._readv is None, reason="the system has no process_vm_readv()")]


@pytest.fixture(autouse=True)
def closed():
    yield
    _workers._close_all()
    assert not _direct._lingering


def replace_call(monkeypatch, function):
    """Of the kernel, with the GIL held and without."""
    for name in ("_readv", "_readv_held"):
        monkeypatch.setattr(_direct, name, function)


@pytest.fixture
def reads(monkeypatch):
    """The lengths of what was read directly."""
    done = []

    def read(process, pieces):
        done.extend(length for _, _, length in pieces if length > 8)
        original(process, pieces)

    original = _direct._read
    monkeypatch.setattr(_direct, "_read", read)
    return done


@contextlib.asynccontextmanager
async def acquainted(**options):
    """Two comms that know whether they can read each other's memory."""
    async with comm_pair(**options) as (a, b):
        for one, other in ((a, b), (b, a)):
            await asyncio.gather(one.write("hello"), other.read())
        yield a, b


async def test_large_buffers_are_read_where_they_are(reads):
    small, large = np.arange(500), np.arange(3_000_000)
    fixed = np.arange(100_000.0)
    fixed.flags.writeable = False
    message = {"a": large, "b": small, "c": np.zeros(0), "d": fixed, "e": large[:1_000_000], "f": bytes(20_000_000)}
    async with acquainted() as (a, b):
        for writer, reader in ((a, b), (b, a)):
            reads.clear()
            sent = {key: to_serialize(value) for key, value in message.items()}
            _, got = await asyncio.gather(writer.write(sent), reader.read())
            assert sorted(reads) == [fixed.nbytes, 8_000_000, 20_000_000, large.nbytes]
            for key, value in message.items():
                np.testing.assert_array_equal(got[key], value)
            got["a"][0] = -1
            assert large[0] == 0
            await until(lambda: not writer._lender and writer._unsent == 0)  # noqa: B023


async def test_many_small_buffers_are_read_together(reads):
    """More of them than the kernel takes at a time; and a message with few bytes in them goes as it is."""
    arrays = [np.full(600 + i % 7, i) for i in range(2500)]
    async with acquainted() as (a, b):
        for many in (arrays, arrays[:5]):
            reads.clear()
            sent = [to_serialize(x) for x in many]
            _, got = await asyncio.gather(a.write(sent), b.read())
            assert len(got) == len(many) and all((x == y).all() for x, y in zip(got, many, strict=True))
            # Besides the list of what the message holds, where that is long.
            assert [n for n in reads if n < 5000] == ([x.nbytes for x in many] if many is arrays else [])


def test_a_read_goes_on_where_the_kernel_stopped(monkeypatch):
    whole = np.arange(30_000, dtype="u1").reshape(3, 10_000)
    got = np.zeros_like(whole)

    def some(process, here, count, there, same, flags):
        """Of the first piece, and not more than 4,500 bytes."""
        address, length = struct.unpack_from("@2N", here)
        start, also = struct.unpack_from("@2N", there)
        assert count == same and length == also
        n = min(length, 4500)
        ctypes.memmove(address, start, n)
        return n

    replace_call(monkeypatch, some)
    _direct._read(1, [(x.ctypes.data, y.ctypes.data, x.nbytes) for x, y in zip(whole, got, strict=True)] + [(1, 1, 0)])
    assert (got == whole).all()


async def test_a_fetched_result_is_read_directly(reads):
    """As a worker does it: a connection, a question, a large answer."""

    async def answer(comm):
        n = await comm.read()
        await comm.write({"x": to_serialize(np.arange(n))})

    async with listen("ucx://127.0.0.1:0", answer) as listener:
        comm = await connect(listener.contact_address)
        await comm.write(1_000_000)
        assert ((await comm.read())["x"] == np.arange(1_000_000)).all()
        await comm.close()
    assert reads == [8_000_000]


@pytest.mark.parametrize(
    "settings",
    [{"direct-reads": False}, {"environment": {"tls": "sysv,tcp,self"}}, {"environment": {"tls": "tcp,self"}}],
    ids=str,
)
async def test_settings_can_forbid_it(reads, settings):
    with dask.config.set({f"distributed.comm.ucx.{key}": value for key, value in settings.items()}):
        async with acquainted() as (a, b):
            _, got = await asyncio.gather(a.write(to_serialize(np.ones(1_000_000))), b.read())
            assert got.sum() == 1_000_000 and not reads


async def test_where_the_kernel_refuses_it_ucx_carries_all(reads, monkeypatch):
    replace_call(monkeypatch, lambda *args: -1)
    async with acquainted() as (a, b):
        _, got = await asyncio.gather(a.write(to_serialize(np.ones(1_000_000))), b.read())
        assert got.sum() == 1_000_000 and not reads


@pytest.mark.parametrize("after", [0, 1], ids=["at once", "before the mark is looked at"])
async def test_permission_that_is_withdrawn_costs_no_message(monkeypatch, after):
    """A process that changes its user, or a setting of the kernel, say: what was lent before is sent."""
    left = after
    original = _direct._readv

    def refuse(*args):
        nonlocal left
        if left == 0:
            ctypes.set_errno(errno.EPERM)
            return -1
        left -= 1
        return original(*args)

    async with acquainted() as (a, b):
        await a.write({"x": to_serialize(np.arange(1_000_000))})
        await a.write("more")
        assert a._lender
        replace_call(monkeypatch, refuse)
        assert ((await asyncio.wait_for(b.read(), 20))["x"] == np.arange(1_000_000)).all()
        assert await b.read() == "more"
        await until(lambda: not a._lender and a._unsent == 0)
        _, got = await asyncio.gather(a.write(to_serialize(np.ones(1_000_000))), b.read())
        assert got.sum() == 1_000_000 and not a._lender


@pytest.mark.parametrize("told", [None, "x", (1, 2), (0, 0, 0), (-1, 1, 1), (1 << 80, 5, 5), (os.getpid(), 8, 3)])
def test_what_a_peer_says_about_itself_is_tried(told):
    assert _direct.reachable(told) is None


@pytest.mark.parametrize("leaves", [False, True])
async def test_what_cannot_be_read_is_sent(monkeypatch, leaves):
    """The memory of a device, say. Nothing is lent to that peer any more; what was already comes all the same."""
    tried = []

    def read(process, pieces):
        if pieces[0][2] > 8:
            tried.append(pieces)
            raise OSError(errno.EFAULT, "no such memory")
        original(process, pieces)

    original = _direct._read
    async with acquainted() as (a, b):
        monkeypatch.setattr(_direct, "_read", read)
        for i in range(3):
            await a.write({"i": i, "x": to_serialize(np.full(500_000, i)), "y": to_serialize(np.ones(1 << i << 15))})
            await a.write(i)
        if leaves:
            a.abort()
        for i in range(3):
            got = await asyncio.wait_for(b.read(), 20)
            assert got["i"] == i and (got["x"] == i).all() and got["y"].sum() == 1 << i << 15
            assert await b.read() == i
        assert len(tried) == 3
        if not leaves:
            _, got = await asyncio.gather(a.write(to_serialize(np.ones(1_000_000))), b.read())
            assert got.sum() == 1_000_000 and len(tried) == 3
            await until(lambda: not a._lender and a._unsent == 0)


async def test_a_cancelled_write_is_taken_back():
    """Its memory may hold something else by the time that the peer looks."""
    x = np.ones(2_000_000)
    async with acquainted() as (a, b):
        a._ahead = 0
        write = asyncio.ensure_future(a.write(to_serialize(x)))
        await asyncio.sleep(0.05)
        write.cancel()
        with pytest.raises(asyncio.CancelledError):
            await write
        x[:] = 2
        assert not a._lender
        with pytest.raises(CommClosedError):
            await b.read()


async def test_what_is_taken_back_while_it_is_read_is_no_message(monkeypatch):
    async with acquainted() as (a, b):
        original = _direct._read

        def read(process, pieces):
            original(process, pieces)
            if pieces[0][2] > 8:
                a._cut()

        await a.write(to_serialize(np.ones(1_000_000)))
        monkeypatch.setattr(_direct, "_read", read)
        with pytest.raises(CommClosedError):
            await b.read()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_what_was_written_is_there_until_it_is_read(how):
    async with acquainted() as (a, b):
        for i in range(3):
            await a.write({"x": to_serialize(np.full(500_000, i)), "i": i})
        closing = asyncio.ensure_future(a.close()) if how == "close" else a.abort()
        await asyncio.sleep(0.05)
        assert a.closed() and not b.closed()
        for i in range(3):
            assert (await b.read())["x"].sum() == 500_000 * i
        if closing is not None:
            await asyncio.wait_for(closing, 2)
        with pytest.raises(CommClosedError):
            await b.read()
        await until(lambda: not _direct._lingering)


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_peer_that_does_not_read_is_not_waited_for_long(how):
    with dask.config.set({"distributed.comm.ucx.close-timeout": "200ms"}):
        async with acquainted() as (a, b):
            await a.write(to_serialize(np.ones(500_000)))
            if how == "close":
                await asyncio.wait_for(a.close(), 3)
            else:
                a.abort()
                await until(lambda: not _direct._lingering, 3)
            assert not a._lender
            with pytest.raises(CommClosedError):
                await b.read()


async def test_a_comm_that_is_dropped_takes_its_buffers_back():
    async with acquainted() as (a, b):
        await b.write(to_serialize(np.ones(500_000)))
        lender = b._lender
        b._finalizer()
        assert not lender and lender.where() is None
        with pytest.raises(CommClosedError):
            await a.read()
        b._endpoint = None


def _child(pipe):
    async def main():
        held = []

        async def hold(comm):
            held.append(comm)
            await comm.write("hello")
            await comm.read()
            await comm.write(to_serialize(np.ones(1_000_000)))
            await asyncio.sleep(60)

        async with listen("ucx://127.0.0.1:0", hold) as listener:
            pipe.send(listener.contact_address)
            await asyncio.sleep(60)

    asyncio.run(main())


@pytest.mark.parametrize("who", ["reader", "writer"])
async def test_a_killed_peer(who):
    with spawned(_child) as (pipe, process):
        comm = await connect(await asyncio.to_thread(pipe.recv))
        assert await comm.read() == "hello"
        await comm.write("hello")
        if who == "reader":
            await until(lambda: comm._source is not None and comm._peer_reads)
            await comm.write(to_serialize(np.ones(1_000_000)))
            assert comm._lender
            process.kill()
            await until(lambda: not comm._lender and comm._unsent == 0)
        else:
            await asyncio.sleep(0.3)
            process.kill()
            process.join()
            with pytest.raises(CommClosedError):
                await asyncio.wait_for(comm.read(), 20)
        assert comm.closed()
        await comm.close()


async def test_marks_are_used_again():
    for _ in range(3):
        async with acquainted() as (a, _b):
            where = a._lender.where()
        gc.collect()
    assert len(_direct._marks._blocks) == 1 or where is None
    assert all(mark.value == 0 for mark in _direct._marks._free)


def test_a_worker_is_settled_while_other_loops_connect():
    failed = []
    ended = threading.Event()

    def settle():
        try:
            while not ended.is_set():
                _direct.settle("its worker", 0)
        except RuntimeError as e:
            failed.append(e)

    thread = threading.Thread(target=settle)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for _ in range(100):
            lenders = [_direct.Lender(types.SimpleNamespace(worker="another")) for _ in range(40)]
            for lender in lenders:
                lender.revoke()
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not failed


def _short_lived(pipe):
    async def main():
        done = asyncio.Event()

        async def answer(comm):
            await comm.write("hello")
            await comm.read()
            await comm.write(to_serialize(np.ones(1_000_000)))
            comm.abort()
            done.set()

        async with listen("ucx://127.0.0.1:0", answer) as listener:
            pipe.send(listener.contact_address)
            await done.wait()

    asyncio.run(main())


async def test_a_process_that_ends_waits_a_moment_for_its_readers():
    with spawned(_short_lived) as (pipe, process):
        comm = await connect(await asyncio.to_thread(pipe.recv))
        assert await comm.read() == "hello"
        await comm.write("hello")
        await asyncio.sleep(0.3)
        assert (await comm.read()).sum() == 1_000_000
        await comm.close()
        await asyncio.to_thread(process.join, 20)
        assert process.exitcode == 0
