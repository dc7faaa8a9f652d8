"""Who waits for things that come one by one: peers, active messages, notifications."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core, _errors

if TYPE_CHECKING:
    from ._worker import Worker

R = TypeVar("R")

# What a handler returns that only puts messages aside.
KEPT = object()


class Waiters:
    """Operations that wait for things which come one by one; first come, first served."""

    def __init__(self, worker: Worker) -> None:
        self._worker = weakref.ref(worker)  # a worker has some itself
        self.things: collections.deque[Any] = collections.deque()
        self.waiting: collections.deque[_core.Operation[Any]] = collections.deque()
        self._room = 16  # with more of them, those that were cancelled go
        self._back = functools.partial(_untaken, weakref.ref(self))  # an operation must not hold what holds it

    def put(self, thing: Any) -> object:
        if self._hand_over(thing):
            return None
        self.things.append(thing)
        if self.waiting:  # by another thread since
            self._settle()
        return KEPT

    def _hand_over(self, thing: Any) -> bool:
        while self.waiting:
            with contextlib.suppress(IndexError):  # another thread had the last one
                if self._give(self.waiting.popleft(), thing):
                    return True
        return False

    def _settle(self) -> None:
        """Things go to those who wait; threads may put and get at once."""
        while self.things and self.waiting:
            with contextlib.suppress(IndexError):
                thing = self._pop()
                if not self._hand_over(thing):
                    self.things.appendleft(thing)

    def _give(self, operation: _core.Operation[Any], thing: Any) -> bool:
        """False: whoever waited gave it up."""
        return operation._end(0, thing)

    def get(self) -> _core.Operation[Any]:
        worker = self._worker()
        assert worker is not None
        operation = _core.operation(worker, self._back)
        if len(self.waiting) >= self._room:
            self._forget_cancelled()
        self.waiting.append(operation)  # first: what comes now finds it
        self._settle()
        return operation

    def _forget_cancelled(self) -> None:
        for _ in range(len(self.waiting)):
            with contextlib.suppress(IndexError):
                operation = self.waiting.popleft()
                if not operation.cancelled():
                    self.waiting.append(operation)
        self._room = 2 * len(self.waiting) + 16

    def _pop(self) -> Any:
        return self.things.popleft()

    def fail(self, code: int, text: str) -> None:
        """Everything that waits ends with an error."""
        while self.waiting:
            self.waiting.popleft()._end(code, None, text)


def _untaken(waiters: weakref.ref[Waiters], thing: Any) -> None:
    """Who waited for it was interrupted before it went on: it is the next one's."""
    there = waiters()
    if there is not None and not there._hand_over(thing):
        there.things.appendleft(thing)


class Messages(Waiters):
    """Active messages: what a peer may send before somebody asks for them is bounded by its credit."""

    def _give(self, operation: _core.Operation[Any], thing: tuple[bytes, Any] | _Lost) -> bool:
        if isinstance(thing, _Lost):
            return operation._end(thing.code, None, thing.text)
        return operation._end(0, thing)

    def _pop(self) -> tuple[bytes, Any] | _Lost:
        thing: tuple[bytes, Any] | _Lost = self.things.popleft()
        if not isinstance(thing, _Lost):
            thing[1]._taken()
        return thing


@dataclasses.dataclass
class _Lost:
    """An active message that could not be received: there was no memory, or its sender is gone."""

    code: int
    text: str


class Keep:
    """The handler of active messages that are kept for Endpoint.recv_am()."""

    def __init__(self, id: int) -> None:
        self._id = id

    def __call__(self, endpoint: Any, header: bytes, data: Any) -> object:
        return endpoint._am_queue(self._id).put((header, data)) if endpoint is not None else None

    def lost(self, endpoint: Any, code: int, text: str) -> None:
        if endpoint is not None:
            endpoint._am_queue(self._id).put(_Lost(code, text))


async def within(operation: _core.Operation[R], seconds: float) -> R:
    """Await an operation that is not the library's; it is cancelled and TimedOutError raised after so long."""
    limit = getattr(_core.running_loop(), "hawser_wait_for", asyncio.wait_for)
    try:
        result: R = await limit(operation, seconds)
    except TimeoutError as e:
        if isinstance(e, _errors.HawserError):
            raise
        raise _errors.from_code(_errors.ErrorCode.TIMED_OUT, "the deadline passed") from None
    return result
