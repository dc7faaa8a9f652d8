"""The worker of each event loop, and what is closed when Python ends."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from . import _core, _errors
from ._context import Context
from ._worker import Worker

_defaults: weakref.WeakKeyDictionary[Any, Worker] = weakref.WeakKeyDictionary()
_defaults_lock = threading.Lock()
_context: Context | None = None


def default_worker() -> Worker:
    """The worker of the running event loop: opened at its first use, closed when Python ends, or as another loop
    opens one after this loop was closed and everything on the worker."""
    global _context
    loop = _core.running_loop()
    worker = _defaults.get(loop)
    if worker is None or worker._state != "open" or worker.closed:
        with _defaults_lock:
            for old in [x for x in _defaults if x.is_closed() and _defaults[x]._unused()]:
                beside(_defaults.pop(old).close_wait, 5.0)
            if _context is None or _context.closed:
                _context = Context()
            worker = _defaults[loop] = Worker(_context)
    return worker


def beside(close: Callable[..., object], *args: Any) -> None:
    """Close what nobody uses or makes progress on any more, while the caller goes on."""

    def run() -> None:
        with contextlib.suppress(_errors.HawserError, BufferError):
            close(*args)

    threading.Thread(target=run, name="hawser-close", daemon=True).start()


at_exit: list[Callable[[], None]] = []


def _close_defaults() -> None:
    global _context
    _core.ends()
    with contextlib.suppress(_errors.ForkedError):  # a child of fork() that ends has nothing to close
        for close in at_exit:
            close()
        for worker in list(_defaults.values()):
            with contextlib.suppress(BufferError):
                worker.close_wait(1.0)
    _defaults.clear()
    if _context is not None:
        context, _context = _context, None
        with contextlib.suppress(_errors.HawserError, BufferError):
            context.close(1.0)
