"""Progress for who blocks."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._worker import UCXWorker

# How long a peer may take to answer, in seconds.
HANDSHAKE_SECONDS = 30.0

# Whoever blocks makes progress on all of them: both ends may be in this thread.
workers: weakref.WeakSet[UCXWorker] = weakref.WeakSet()


def progress_all(over: Callable[[], bool], seconds: float) -> bool:
    """Make progress on every worker of this process until it is over; False if that takes too long."""
    end = time.monotonic() + seconds
    while not over():
        worked = 0
        for worker in list(workers):
            if worker.initialized:
                worked += worker._worker.progress()
        if worked == 0:
            if time.monotonic() > end:
                return False
            time.sleep(0)
    return True
