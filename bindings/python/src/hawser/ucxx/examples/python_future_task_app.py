"""An application whose threads complete futures of an event loop; UCXX's is written in C++."""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from typing import Any


class PythonFutureTaskApplication:
    """Its tasks take a while and give their number. The loop is the one that awaits them."""

    def __init__(self, asyncio_event_loop: asyncio.AbstractEventLoop) -> None:
        self._loop = asyncio_event_loop
        self._changed = threading.Condition()
        self._tasks: list[tuple[float, int, int, asyncio.Future[int]]] = []  # by the time of their end
        self._count = 0
        self._closed = False
        threading.Thread(target=self._work, name="ucxx-example", daemon=True).start()

    def submit(self, duration: float = 1.0, id: int = 0) -> asyncio.Future[int]:
        """A future that gives `id` after `duration` seconds."""
        future: asyncio.Future[int] = self._loop.create_future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the application is closed")
            heapq.heappush(self._tasks, (time.monotonic() + duration, self._count, id, future))
            self._count += 1
            self._changed.notify_all()
        return future

    def submit_until_close(self, id: int = 0) -> asyncio.Future[int]:
        """A future that gives `id` once the application is closed."""
        return self.submit(float("inf"), id)

    def wait_until_task_accepted(self) -> None:
        """Block until a task was submitted."""
        with self._changed:
            self._changed.wait_for(lambda: self._count > 0)

    def close(self) -> None:
        """End what goes on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __enter__(self) -> PythonFutureTaskApplication:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _next(self) -> tuple[int, asyncio.Future[int]] | None:
        """Wait for a task's end; None: it was closed, and nothing is left."""
        with self._changed:
            while not self._closed and (not self._tasks or self._tasks[0][0] > time.monotonic()):
                left = self._tasks[0][0] - time.monotonic() if self._tasks else threading.TIMEOUT_MAX
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            return heapq.heappop(self._tasks)[2:] if self._tasks else None

    def _work(self) -> None:
        while (ended := self._next()) is not None:
            id, future = ended
            try:
                self._loop.call_soon_threadsafe(_give, future, id)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more


def _give(future: asyncio.Future[Any], id: int) -> None:
    if not future.done():
        future.set_result(id)
