"""Trio: a run of it as the extension knows event loops. Imported once `trio` has been."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from typing import Any

import sniffio
import trio
from trio.lowlevel import Abort

from . import _core, _errors

log = logging.getLogger("hawser")


async def wait(operation: _core.Operation[Any]) -> Any:
    """Wait for an operation: under Trio every await of one comes here that is not done in time."""
    if operation.done():
        result = _result(operation)
        # The others' turn. What has arrived would be lost by raising Cancelled here.
        await (trio.lowlevel.checkpoint() if result is None else trio.lowlevel.cancel_shielded_checkpoint())
        return result
    task = trio.lowlevel.current_task()

    def wake(_: object) -> None:
        trio.lowlevel.reschedule(task)

    def abort(_: object) -> Abort:
        if not operation.remove_done_callback(wake):
            return Abort.FAILED  # it has ended, and wake() is under way
        if operation.cancel():
            return Abort.SUCCEEDED
        wake(operation)  # it has ended just now
        return Abort.FAILED

    operation.add_done_callback(wake)
    await trio.lowlevel.wait_task_rescheduled(abort)
    return _result(operation)


def _result(operation: _core.Operation[Any]) -> Any:
    if operation.cancelled():  # by its cancel(): asyncio's exception for that means nothing to Trio
        raise _errors.from_code(_errors.ErrorCode.CANCELED, "the operation was cancelled")
    return operation.result()


class Loop:
    """What of an asyncio loop's methods the extension calls, for one run of Trio."""

    hawser_wait = staticmethod(wait)

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._due: collections.deque[tuple[Callable[..., object], Any, Any]] = collections.deque()
        self._parked: Any = None  # the task that calls what is due, while nothing is
        self._readers: dict[int, trio.CancelScope] = {}
        self._closed = False
        trio.lowlevel.spawn_system_task(self._call_due, name="hawser: calls")

    def is_closed(self) -> bool:
        return self._closed

    async def hawser_wait_for(self, operation: _core.Operation[Any], seconds: float) -> Any:
        with trio.move_on_after(seconds):
            return await operation
        raise TimeoutError

    # ---- Calls ----

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> None:
        if self._closed:
            raise RuntimeError("this run of Trio has ended")
        if sniffio.thread_local.name != "trio":  # its host's turn: Trio may be asleep
            self.call_soon_threadsafe(callback, *args, context=context)
            return
        self._due.append((callback, args, context))
        if self._parked is not None:
            task, self._parked = self._parked, None
            trio.lowlevel.reschedule(task)

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> None:
        self._token.run_sync_soon(_call, callback, args, context)

    def call_later(self, delay: float, callback: Callable[[], object]) -> None:
        trio.lowlevel.spawn_system_task(_later, delay, callback, name="hawser: deadline")

    async def _call_due(self) -> None:
        def abort(_: object) -> Abort:
            self._parked = None
            return Abort.SUCCEEDED

        try:
            while True:
                for _ in range(len(self._due)):
                    _call(*self._due.popleft())
                if self._due:
                    await trio.lowlevel.checkpoint()
                else:
                    self._parked = trio.lowlevel.current_task()
                    await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            self._closed = True

    # ---- Descriptors ----

    def add_reader(self, fd: int, callback: Callable[[], object]) -> None:
        scope = self._readers[fd] = trio.CancelScope()
        trio.lowlevel.spawn_system_task(_watch, fd, callback, scope, name="hawser: descriptor")

    def remove_reader(self, fd: int) -> None:
        self._readers.pop(fd).cancel()


def _call(callback: Callable[..., object], args: tuple[Any, ...], context: Any) -> None:
    """An exception of a task that serves others would end the whole run."""
    try:
        if context is None:
            callback(*args)
        else:
            context.run(callback, *args)
    except Exception:
        log.exception("in a callback: %r", callback)


async def _later(delay: float, callback: Callable[[], object]) -> None:
    await trio.sleep(delay)
    _call(callback, (), None)


async def _watch(fd: int, callback: Callable[[], object], scope: trio.CancelScope) -> None:
    with scope:
        while True:
            await trio.lowlevel.wait_readable(fd)
            _call(callback, (), None)


_loop: trio.lowlevel.RunVar[Loop] = trio.lowlevel.RunVar("hawser")


def running() -> Loop | None:
    """The loop of the run of Trio that this thread is in just now."""
    if sniffio.thread_local.name != "trio":
        return None
    try:
        return _loop.get()
    except LookupError:
        loop = Loop()
        _loop.set(loop)
        return loop
