"""Helpers for tests with processes."""

from __future__ import annotations

import contextlib
import queue
import time
import traceback
from collections.abc import Callable
from typing import Any


def run_in_subprocess(target: Callable[..., Any], error_queue: Any, *args: Any, **kwargs: Any) -> None:
    """Run a function; the traceback of what it raises goes into a queue too."""
    try:
        target(*args, **kwargs)
    except Exception:
        error_queue.put(traceback.format_exc())
        raise


def join_processes(processes: list[Any], timeout: float) -> None:
    """Join processes within a time for all of them."""
    end = time.monotonic() + timeout
    for process in processes:
        process.join(timeout=max(0, end - time.monotonic()))


def terminate_process(process: Any, kill_wait: float = 3.0, error_queue: Any = None) -> None:
    """See that a process is gone. Raises RuntimeError if it failed, ValueError if it cannot be killed."""
    if process.is_alive():
        process.kill()
    end = time.monotonic() + kill_wait
    while process.is_alive() and time.monotonic() < end:
        time.sleep(1e-3)
    if process.is_alive():
        process.close()
    elif process.exitcode != 0:
        text = f"Process did not exit cleanly (exit code: {process.exitcode})"
        if error_queue is not None:
            with contextlib.suppress(queue.Empty):
                text += f"\n\nSubprocess traceback:\n{error_queue.get_nowait()}"
        raise RuntimeError(text)


def wait_requests(worker: Any, progress_mode: str, requests: Any) -> None:
    """Wait for requests of the synchronous core, and raise what they failed with."""
    if not isinstance(requests, list):
        requests = [requests]
    while not all(request.completed for request in requests):
        if progress_mode == "blocking":
            worker.progress_worker_event()
        else:
            time.sleep(0)
    for request in requests:
        request.check_error()
