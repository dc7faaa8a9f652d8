# TIMEOUT: 240
"""How a comm ends: what was written arrives, what waits ends, and closing is bounded."""

import asyncio
import time

import numpy as np
import pytest
from dask_support import comm_pair, spawned, until
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import Serialized, to_serialize

pytestmark = [pytest.mark.usefixtures("comms")]


async def test_a_loop_that_computes_loses_no_connection():
    """Longer than a lost peer takes to be noticed, with data on its way."""
    x = np.arange(30_000_000)
    async with comm_pair() as (a, b):
        both = asyncio.gather(a.write(to_serialize(x)), b.read())
        await asyncio.sleep(0.02)
        time.sleep(4)
        _, got = await both
        np.testing.assert_array_equal(got, x)


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
