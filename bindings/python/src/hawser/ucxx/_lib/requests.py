"""What UCXX gives for a communication that goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from hawser import _core

from ..exceptions import UCXCanceledError, UCXError, convert

_OK = 0
_IN_PROGRESS = 1
_FAILED = -1
_CANCELED = -16


class UCXRequest:
    """A communication. It is posted when this exists."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._error: Exception | None = None
        self._call: Any = None  # the operation, to cancel it
        self._waiting: list[Callable[[], None]] = []
        self.completed = False
        self.recv_buffer: Any = None
        self.recv_header: bytes = b""

    @property
    def status(self) -> int:
        """UCX's status: 0 done, 1 going on, negative failed."""
        if not self.completed:
            return _IN_PROGRESS
        if self._error is None:
            return _OK
        return _CANCELED if isinstance(self._error, UCXCanceledError) else _FAILED

    @property
    def future(self) -> Any:
        """An awaitable of it."""
        return self.wait()

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    def _ended(self, _request: Any, exception: Exception | None) -> None:
        self._error = None if exception is None else convert(exception)
        self.completed = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def check_error(self) -> None:
        """Raise what it failed with."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> bool:
        """Wait for it; raises what it failed with."""
        if not self.completed:
            loop = asyncio.get_running_loop()
            future = loop.create_future()

            def wake() -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(_wake, future)

            self._waiting.append(wake)
            if self.completed:
                wake()
            if not self._worker._is_progressed:
                self._worker._worker._watch()
            try:
                await future
            except asyncio.CancelledError:
                self.cancel()
                raise
        self.check_error()
        return True

    wait_yield = wait

    def cancel(self) -> None:
        """Ask for its end."""
        if not self.completed and self._call is not None:
            with contextlib.suppress(Exception):
                _core.cancel(self._call.id)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AmRequest(UCXRequest):
    """A receive of an active message: there is nothing to be posted, so it ends at once when it is cancelled."""

    def cancel(self) -> None:
        """End it; the message that comes next is the next receive's."""
        if not self.completed:
            self._ended(None, UCXCanceledError("While waiting for am_recv it was cancelled"))


class UCXBufferRequest:
    """One buffer of a multi-buffer message."""

    def __init__(self, request: UCXRequest, py_buffer: Any) -> None:
        self.request = request
        self.py_buffer = py_buffer

    def check_error(self) -> None:
        """Raise what it failed with."""
        self.request.check_error()


class UCXBufferRequests(UCXRequest):
    """A multi-buffer message: its buffers are there once it is completed."""

    py_buffers: tuple[Any, ...] = ()

    @property
    def all_completed(self) -> bool:
        """Whether every buffer is complete."""
        return self.completed

    @property
    def requests(self) -> tuple[UCXBufferRequest, ...]:
        """One for each buffer."""
        return tuple(UCXBufferRequest(self, buffer) for buffer in self.py_buffers)

    def _listed(self, operation: Any) -> None:
        """The list of the buffers came: receive them."""
        try:
            segments = operation.result()
            self.py_buffers = tuple(empty(n) for n in segments.lengths)
            self._call = fetch = segments.fetch(list(self.py_buffers))
            fetch._on_end(lambda operation: self._ended(None, operation.exception()))
        except Exception as e:
            self._ended(None, e)


def empty(nbytes: int) -> Any:
    """Memory for a message: an array of numpy where that is installed."""
    try:
        import numpy
    except ImportError:
        return memoryview(bytearray(nbytes))
    return numpy.empty(nbytes, dtype="u1")


__all__ = ["UCXBufferRequest", "UCXBufferRequests", "UCXError", "UCXRequest", "empty"]
