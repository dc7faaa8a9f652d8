"""Memory for large received buffers: fresh memory costs as much time as moving data into it."""

from __future__ import annotations

import bisect
import collections
import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from distributed.system import MEMORY_LIMIT

from ._config import pool_size
from ._pressure import memory_limit, short_of_memory

# Smaller buffers are left to malloc, which reuses memory itself.
SMALLEST = 1 << 20
_ROUND = 1 << 16
# A buffer may be put into a block that is bigger by so much.
_WASTE = 1.25
# Seconds between looks at how much may be kept. Dask's workers look at their memory as often.
_INTERVAL = 0.1


def _view(array: Any) -> memoryview:
    """The array's memory. To typing's tables before Python 3.12 an array is no buffer."""
    return memoryview(array)


class Pool:
    """Blocks of memory whose last user is gone are used again, or freed when nobody wants them.

    allowed: gives the bytes that may be kept for reuse now. keep: seconds that a block is kept
    unused; it may take twice as long when nothing is received meanwhile. Any thread.
    """

    def __init__(self, allowed: Callable[[], int], keep: float = 5.0) -> None:
        self._allowed = allowed
        self._looked = time.monotonic()
        self.limit = allowed()
        self.keep = keep
        self._lock = threading.Lock()
        self._timed = False  # a timer runs
        # Appended to by finalizers, which may run inside any call: they wait for no lock.
        self._returned: collections.deque[tuple[float, Any]] = collections.deque()
        self._free: list[tuple[int, float, Any]] = []  # bytes, since when, block; by bytes
        self.retained = 0
        self.outstanding = 0
        self.reused = 0

    def take(self, n: int) -> memoryview:
        """Writable memory of n bytes. It comes back when nothing refers to it any more."""
        if n >= SMALLEST:
            self._look()
        if n < SMALLEST or n > self.limit:
            return _view(np.empty(n, "u1"))
        with self._lock:
            self._collect()
            i = bisect.bisect_left(self._free, n, key=lambda entry: entry[0])
            if i < len(self._free) and self._free[i][0] <= n * _WASTE:
                size, _, block = self._free.pop(i)
                self.retained -= size
                self.reused += 1
            else:
                size = -(-n // _ROUND) * _ROUND
                block = np.empty(size, "u1")
            self.outstanding += size
        # What every later view refers to: numpy looks through arrays and memoryviews down to the
        # last array whose base is no array. A slice of the block would be looked through too, and
        # the block would come back while it is in use.
        lease = np.frombuffer(_view(block), "u1", n)
        assert not isinstance(lease.base, np.ndarray)
        weakref.finalize(lease, self._give, block).atexit = False
        return _view(lease)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _INTERVAL:
            self._looked = now
            # RuntimeError: another thread was making a worker of Dask; the next look sees it.
            with contextlib.suppress(RuntimeError):
                self.limit = self._allowed()

    def _give(self, block: Any) -> None:
        self._returned.append((time.monotonic(), block))
        self._look()
        # At once: Dask that spills for want of memory goes on until it sees that there is more.
        if self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        """Sort in what came back; free what is too much. Locked."""
        while self._returned:
            since, block = self._returned.popleft()
            self.outstanding -= block.nbytes
            self.retained += block.nbytes
            bisect.insort(self._free, (block.nbytes, since, block), key=lambda entry: entry[0])
        if self.retained > self.limit:
            self._drop(self.limit)

    def _drop(self, limit: int) -> None:
        """Free the blocks that waited longest until no more than `limit` bytes are kept."""
        for entry in sorted(self._free, key=lambda entry: entry[1]):
            if self.retained <= limit:
                break
            self._free = [other for other in self._free if other is not entry]
            self.retained -= entry[0]

    def expire(self) -> bool:
        """Free what nobody wanted for a while; True while something may still come back."""
        self._look()
        with self._lock:
            self._collect()
            oldest = time.monotonic() - self.keep
            fresh = [entry for entry in self._free if entry[1] >= oldest]
            self.retained -= sum(entry[0] for entry in self._free) - sum(entry[0] for entry in fresh)
            self._free = fresh
            return self.outstanding + self.retained > 0

    def expire_later(self) -> None:
        """By a timer of its own: what is received may outlive the loop that received it."""
        if self._timed:
            return
        self._timed = True
        timer = threading.Timer(self.keep, self._expire_in_time)
        timer.daemon = True
        timer.name = "hawser-dask-pool"
        timer.start()

    def _expire_in_time(self) -> None:
        self._timed = False  # before the look: who takes memory during it starts the next one
        if self.expire():
            self.expire_later()


_pool: Pool | None = None


def _allowed() -> int:
    """Bytes that the pool of the process may keep now. Dask counts them as what its workers do not manage, and spills
    or pauses for their sake."""
    if short_of_memory():
        return 0
    chosen = pool_size()
    return min(2 << 30, (memory_limit() or MEMORY_LIMIT) // 10) if chosen is None else chosen


def take(n: int) -> memoryview:
    """Memory for a buffer that is received from the pool of the process."""
    global _pool
    if _pool is None:
        _pool = Pool(_allowed)
    taken = _pool.take(n)
    if n >= SMALLEST:  # afterwards: a timer that ends meanwhile may not have seen it
        _pool.expire_later()
    return taken
