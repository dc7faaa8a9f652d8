"""What UCXX gives for a communication that goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

from hawser import _core
from hawser._errors import HawserError
from hawser._unique import Unique
from hawser.ucp._libs.exceptions import translate_receive

from ..exceptions import (
    UCXBusyError,
    UCXCanceledError,
    UCXConnectionResetError,
    UCXEndpointTimeoutError,
    UCXError,
    UCXInvalidParamError,
    UCXMessageTruncatedError,
    UCXNoMemoryError,
    UCXNotConnectedError,
    UCXTimedOutError,
    UCXUnreachableError,
    UCXUnsupportedError,
    convert,
)

_OK = 0
_IN_PROGRESS = 1
_FAILED = -1
_STATUS: dict[type[Exception], int] = {
    UCXNoMemoryError: -4,
    UCXInvalidParamError: -5,
    UCXUnreachableError: -6,
    UCXMessageTruncatedError: -9,
    UCXBusyError: -15,
    UCXCanceledError: -16,
    UCXTimedOutError: -20,
    UCXUnsupportedError: -22,
    UCXNotConnectedError: -24,
    UCXConnectionResetError: -25,
    UCXEndpointTimeoutError: -80,
}


class Outcome:
    """What becomes of a communication. Its completion holds this and not the request, so that a request that is
    forgotten is collected; who waits for a request holds it, and is held by this."""

    def __init__(self, receives: bool = False) -> None:
        self.receives = receives
        self.completed = False
        self.error: Exception | None = None
        self.call: Any = None  # the operation, to cancel it
        self.waiting: list[Callable[[], None]] = []
        self.recv_buffer: Any = None
        self.recv_header = b""
        self._once = threading.Lock()

    def end(self, exception: Exception | None) -> bool:
        """It has ended; False if it had before."""
        if not self._once.acquire(blocking=False):
            return False
        self.error = None if exception is None else convert(exception)
        self.completed = True
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()
        return True

    def ended(self, _request: Any, exception: Exception | None) -> None:
        """end(), for those who tell of their request too."""
        self.end(exception)

    def cancel(self) -> None:
        """Ask for its end."""
        if not self.completed and self.call is not None:
            _core.cancel(self.call.id)


class AmOutcome(Outcome):
    """A receive of an active message: there is nothing to be posted, so it ends at once when it is cancelled."""

    def cancel(self) -> None:
        """End it; the message that comes next is the next receive's."""
        self.end(UCXCanceledError("While waiting for am_recv it was cancelled"))


class MultiOutcome(Outcome):
    """A multi-buffer message. parts: how many buffers it has, once that is known."""

    def __init__(self, receives: bool = False, parts: int = 0) -> None:
        super().__init__(receives)
        self.parts = parts
        self.buffers: list[Any] = []

    def listed(self, operation: Any) -> None:
        """The list of the buffers came: receive them."""
        try:
            segments = operation.result()
            self.buffers = [empty(n) for n in segments.lengths]
            self.parts = len(self.buffers)
            self.call = fetch = segments.fetch(self.buffers)
            fetch._on_end(lambda operation: self._received(operation.exception()))
        except Exception as e:
            self._received(e)

    def _received(self, error: Exception | None) -> None:
        self.end(translate_receive(error, "tag_recv_multi") if isinstance(error, HawserError) else error)


class UCXRequest(Unique):
    """A communication. It is posted when this exists. Who forgets a receive takes it back."""

    def __init__(self, worker: Any, outcome: Outcome) -> None:
        self._worker = worker
        self._outcome = outcome

    def __del__(self) -> None:
        # As the interpreter exits anything may be missing.
        with contextlib.suppress(Exception):
            if self._outcome.receives and not self._outcome.completed:
                self._outcome.cancel()

    @property
    def completed(self) -> bool:
        """Whether it has ended."""
        return self._outcome.completed

    @property
    def recv_buffer(self) -> Any:
        """The active message that was received."""
        return self._outcome.recv_buffer

    @property
    def recv_header(self) -> bytes:
        """The header that the active message was sent with."""
        return self._outcome.recv_header

    @property
    def status(self) -> int:
        """UCX's status: 0 done, 1 going on, negative failed."""
        if not self.completed:
            return _IN_PROGRESS
        error = self._outcome.error
        return _OK if error is None else _STATUS.get(type(error), _FAILED)

    @property
    def future(self) -> Any:
        """An awaitable of it."""
        return self.wait()

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    def check_error(self) -> None:
        """Raise what it failed with."""
        if self._outcome.error is not None:
            raise self._outcome.error

    async def wait(self) -> None:
        """Wait for it; raises what it failed with."""
        if not self.completed:
            loop = asyncio.get_running_loop()
            future = loop.create_future()

            def wake() -> None:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(_wake, future)

            self._outcome.waiting.append(wake)
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

    wait_yield = wait

    def cancel(self) -> None:
        """Ask for its end."""
        with contextlib.suppress(Exception):
            self._outcome.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class UCXBufferRequest(UCXRequest):
    """One buffer of a multi-buffer message."""

    def __init__(self, request: UCXBufferRequests, py_buffer: Any) -> None:
        super().__init__(request._worker, request._outcome)
        self.request = request
        self.py_buffer = py_buffer

    def __del__(self) -> None:
        """The whole message is what is taken back."""


class UCXBufferRequests(UCXRequest):
    """A multi-buffer message: its buffers are there once it is completed."""

    _outcome: MultiOutcome

    @property
    def all_completed(self) -> bool:
        """Whether every buffer is complete."""
        return self.completed

    @property
    def py_buffers(self) -> list[Any]:
        """The buffers that were received. Raises RuntimeError before they are complete."""
        if not self.completed:
            raise RuntimeError("The buffers are not complete yet")
        return list(self._outcome.buffers)

    @property
    def requests(self) -> tuple[UCXBufferRequest, ...]:
        """One for each buffer, once it is known how many there are."""
        outcome = self._outcome
        buffers = outcome.buffers or [None] * outcome.parts
        return tuple(UCXBufferRequest(self, buffer) for buffer in buffers)


def empty(nbytes: int) -> Any:
    """Memory for a message: an array of numpy where that is installed."""
    try:
        import numpy
    except ImportError:
        return memoryview(bytearray(nbytes))
    return numpy.empty(nbytes, dtype="u1")


__all__ = ["UCXBufferRequest", "UCXBufferRequests", "UCXError", "UCXRequest", "empty"]
