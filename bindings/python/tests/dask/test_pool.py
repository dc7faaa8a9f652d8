"""Memory of received buffers is used again, never while anybody sees it, and given back."""

import asyncio
import gc
import pickle
import time

import numpy as np
import pytest
from distributed import Scheduler, Worker
from distributed.protocol import deserialize, serialize

from hawser.dask import _pool, _workers
from hawser.dask._pool import SMALLEST, Pool

MIB = 1 << 20


@pytest.fixture
def pool():
    return Pool(lambda: 64 * MIB, keep=0.0)


def address(view):
    return np.frombuffer(view, "u1").__array_interface__["data"][0]


VIEWS = {
    "memoryview": lambda view: view[10:].cast("B"),
    "frombuffer": lambda view: np.frombuffer(view, "f8").reshape(-1, 2)[10:],
    "asarray": lambda view: np.asarray(view)[10:],
    "ndarray": lambda view: np.ndarray((1000, 100), "f8", buffer=view)[10:].T,
    "ndarray of a slice": lambda view: np.ndarray((1000, 100), "f8", buffer=view[8:])[10:].T,
    "ndarray of its object": lambda view: np.ndarray((1000, 100), "f8", buffer=view.obj)[1:],
    "view of its object": lambda view: view.obj[10:].view("u1").reshape(-1, 2),
    "deserialized": lambda view: deserialize(*_serialized(view)),
    "unpickled": lambda view: pickle.loads(_PICKLED, buffers=[view[:800_000]]),
}
_PICKLED = pickle.dumps(np.zeros(100_000), protocol=5, buffer_callback=lambda buffer: None)


def _serialized(view):
    header, (frame,) = serialize(np.zeros(100_000))
    return header, [view[: memoryview(frame).nbytes]]


@pytest.mark.parametrize("name", VIEWS)
def test_memory_is_used_again_when_nobody_sees_it(pool, name):
    view = pool.take(10 * MIB)
    first = address(view)
    seen = VIEWS[name](view)
    del view
    gc.collect()
    other = pool.take(10 * MIB)
    assert address(other) != first and pool.outstanding == 20 * MIB
    del seen
    gc.collect()
    again = pool.take(9 * MIB)
    assert address(again) == first and again.nbytes == 9 * MIB and pool.reused == 1


def test_a_block_that_is_much_too_big_is_not_used(pool):
    del [pool.take(20 * MIB)][:]
    view = pool.take(10 * MIB)
    assert pool.reused == 0 and pool.retained == 20 * MIB
    assert view.nbytes == 10 * MIB


def test_what_is_kept_is_bounded(pool):
    views = [pool.take(10 * MIB) for _ in range(10)]
    assert pool.outstanding == 100 * MIB
    del views
    pool.take(SMALLEST)
    assert pool.retained <= pool.limit and pool.outstanding <= 2 * SMALLEST


def test_unused_memory_is_freed(pool):
    view = pool.take(10 * MIB)
    assert pool.expire()
    del view
    pool.expire()
    assert not pool.expire() and pool.retained == 0 == pool.outstanding


def test_small_and_huge_buffers_are_not_pooled(pool):
    for n in (0, 1, SMALLEST - 1, pool.limit + 1):
        view = pool.take(n)
        assert view.nbytes == n and not view.readonly
    assert pool.outstanding == 0


def test_what_is_kept_goes_down_at_once(pool, monkeypatch):
    """Dask spills until it sees that there is more memory: it cannot wait for the next buffer that is received."""
    monkeypatch.setattr(_pool, "_INTERVAL", 0.0)
    views = [pool.take(10 * MIB) for _ in range(3)]
    views.pop()
    gc.collect()
    assert pool.retained == 10 * MIB
    pool._allowed = lambda: 0
    views.pop()
    gc.collect()
    assert pool.retained == 0 and pool.outstanding == 10 * MIB
    pool.take(10 * MIB)
    assert pool.outstanding == 10 * MIB


def test_what_a_closed_loop_received_goes(monkeypatch):
    monkeypatch.setattr(_pool, "_pool", _pool.Pool(lambda: 1 << 30, keep=0.1))

    async def receive():
        return _pool.take(10 * MIB)

    view = asyncio.run(receive())
    assert _pool._pool.outstanding == 10 * MIB
    del view
    gc.collect()
    end = time.monotonic() + 20
    while _pool._pool.retained + _pool._pool.outstanding and time.monotonic() < end:
        time.sleep(0.05)
    assert _pool._pool.retained == _pool._pool.outstanding == 0


def test_a_timer_that_ends_as_memory_is_taken(monkeypatch):
    """It has not seen what is taken, so that somebody else has to give it back."""

    class Late(Pool):
        def take(self, n):
            end = time.monotonic() + 20
            while self._timed and time.monotonic() < end:
                time.sleep(0.01)
            return super().take(n)

    pool = Late(lambda: 1 << 30, keep=0.1)
    monkeypatch.setattr(_pool, "_pool", pool)
    pool.expire_later()
    view = _pool.take(10 * MIB)
    assert view.nbytes == 10 * MIB == pool.outstanding
    del view
    gc.collect()
    end = time.monotonic() + 20
    while pool.retained + pool.outstanding and time.monotonic() < end:
        time.sleep(0.05)
    assert pool.retained == pool.outstanding == 0


async def test_what_is_kept_depends_on_the_memory_of_workers(monkeypatch):
    async with Scheduler(protocol="ucx", host="127.0.0.1", port=0, dashboard_address=":0") as s:
        async with Worker(s.address, nthreads=1, memory_limit="700 MB") as worker:
            used = 1
            monkeypatch.setattr(worker.monitor, "get_process_memory", lambda: used)
            assert _pool._allowed() == 70_000_000
            used = 420_000_000  # 60 %, where Dask stops to spill
            assert _pool._allowed() == 0
    _workers._close_all()
