"""How an event loop makes progress: the loop's poller looks after a worker, in every mode."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

from hawser.ucp.continuous_ucx_progress import ProgressTask


class BlockingMode(ProgressTask):
    """The loop sleeps while nothing happens."""

    def __init__(self, worker: Any, event_loop: asyncio.AbstractEventLoop, progress_timeout: float = 1.0) -> None:
        super().__init__(worker, event_loop)


class PollingMode(ProgressTask):
    """UCXX's busy loop; here the loop sleeps as well."""


class ThreadMode(ProgressTask):
    """A thread makes progress, too, as long as this is held: also where requests are not awaited."""

    def __init__(self, worker: Any, event_loop: asyncio.AbstractEventLoop, polling_mode: bool = False) -> None:
        super().__init__(worker, event_loop)
        worker.start_progress_thread(polling_mode=polling_mode)
        weakref.finalize(self, worker.stop_progress_thread).atexit = False


__all__ = ["BlockingMode", "PollingMode", "ProgressTask", "ThreadMode"]
