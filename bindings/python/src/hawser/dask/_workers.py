"""The workers of Hawser that carry Dask's connections: one for each event loop."""

from __future__ import annotations

import asyncio
import threading

import hawser
from hawser import _worker

from ._config import context_options, progress_mode

_lock = threading.Lock()
_workers: dict[asyncio.AbstractEventLoop, hawser.Worker] = {}
_context: hawser.Context | None = None


def loop_worker() -> hawser.Worker:
    """The worker of the running loop, opened at its first use."""
    loop = asyncio.get_running_loop()
    worker = _workers.get(loop)
    if worker is None or worker.closed:
        with _lock:
            _sweep()
            worker = _workers[loop] = hawser.Worker(_open_context(), progress=progress_mode(), name="dask", am_ids=())
    return worker


def _open_context() -> hawser.Context:
    global _context
    if _context is None or _context.closed:
        _context = hawser.Context(**context_options())
    return _context


def _sweep() -> None:
    """Workers of closed loops are closed beside everything else: nobody progresses them there."""
    for loop in [loop for loop in _workers if loop.is_closed()]:
        worker = _workers.pop(loop)
        threading.Thread(target=worker.close_wait, args=(5.0,), name="hawser-close", daemon=True).start()


def _close_all() -> None:
    global _context
    with _lock:
        for worker in _workers.values():
            worker.close_wait(1.0)
        _workers.clear()
        if _context is not None:
            _context.close(1.0)
            _context = None


_worker.at_exit.append(_close_all)
