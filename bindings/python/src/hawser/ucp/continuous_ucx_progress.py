"""How an event loop makes progress.

hawser's worker is looked after by the loop's poller and spins only while something is awaited, so
UCX-Py's two modes need no two engines: both bind the worker to the loop.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import Any


class ProgressTask:
    """A worker bound to an event loop."""

    def __init__(self, worker: Any, event_loop: asyncio.AbstractEventLoop) -> None:
        self.event_loop = event_loop
        self._worker = weakref.ref(worker)
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is event_loop:
            self._bind()
        elif not event_loop.is_closed():
            event_loop.call_soon_threadsafe(self._bind)

    def _bind(self) -> None:
        worker = self._worker()
        if worker is not None and worker.initialized:
            worker._worker._watch()

    def __hash__(self) -> int:
        return hash(self.event_loop)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgressTask) and self.event_loop is other.event_loop


class BlockingMode(ProgressTask):
    """The default: the loop sleeps while nothing happens."""


class NonBlockingMode(ProgressTask):
    """UCX-Py's busy loop; here the loop sleeps as well."""
