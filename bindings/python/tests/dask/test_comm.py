# TIMEOUT: 240
"""The contract of a comm: its messages, and their order."""

import asyncio
import pickle
import threading

import numpy as np
import pytest
from dask_support import comm_pair, until
from distributed.comm import CommClosedError
from distributed.comm.registry import get_backend
from distributed.protocol import Serialized, deserialize, to_serialize

from hawser.dask import HawserBackend, UCXBackend, _pool

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
