"""Workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from hawser import _core
from hawser._check import function, integer, one
from hawser._endpoint import Endpoint as _Endpoint
from hawser._errors import ForkedError
from hawser._worker import Worker as _Worker

from ._context import AllocatorType, Feature, UCXContext
from ._endpoint import AM_ID, UCXEndpoint, am_arrived
from ._memory import UCXAddress
from ._object import UCXObject
from ._progress import workers
from ._request import UCXRequest, callback, flush, tag_number
from .exceptions import HawserError, UCXError, translate
from .utils import nvtx_annotate

_ANSWER_SECONDS = 1e-3
_LOOK_SECONDS = 1e-3  # of calls of progress() that come more seldom each sees what has arrived


class UCXWorker(UCXObject):
    """A worker of a context."""

    # Whether peers may be programs that run UCX-Py itself: the asyncio API's handshake with them is another.
    of_ucxpy = False

    def __init__(self, context: UCXContext) -> None:
        self._closed = True
        one("context", context, UCXContext)._assert_initialized()
        self._context = context
        try:
            self._worker = _Worker(context._context, am_ids=())
        except HawserError as e:
            raise translate(e, "ucp_worker_create") from e
        super().__init__()
        context.add_child(self)
        self._allocators: dict[AllocatorType, Callable[[int], Any]] = {AllocatorType.HOST: bytearray}
        self._to_cancel: list[Any] = []
        # The asyncio layer has its loop cancel; users of this module call cancel_inflight_messages().
        self._loop_cancels = False
        self._peers: dict[int, _Endpoint] = {}
        self._leaving: list[_Endpoint] = []
        self._looked = 0.0  # when progress() last had something to do, or armed
        self._patient: set[UCXEndpoint] = set()  # closed, but what they send may still arrive
        if Feature.AM in context._features:
            self._worker.am_handler(AM_ID, am_arrived, defer=True)
        workers.add(self)

    @property
    def handle(self) -> int:
        return self._worker.id

    def register_am_allocator(self, allocator: Callable[[int], Any], allocator_type: AllocatorType) -> None:
        """Have active messages received into what `allocator(length)` gives."""
        if one("allocator_type", allocator_type, AllocatorType) is AllocatorType.UNSUPPORTED:
            raise UCXError("Allocator type not supported")
        self._allocators[allocator_type] = function("allocator", allocator)

    def _take_peer(self, conn_request: int) -> _Endpoint:
        """The connection that a listener's callback told of. Raises ValueError if it was taken, or never was."""
        peer = self._peers.pop(integer("conn_request", conn_request), None)
        if peer is None:
            raise ValueError(f"conn_request: {conn_request} is no connection that waits to be taken")
        return peer

    def init_blocking_progress_mode(self) -> int:
        """A descriptor that is readable when an armed worker has work; the caller closes it."""
        self._assert_initialized()
        return os.dup(self._worker.fd)

    def arm(self) -> bool:
        """False: there is work, make progress first."""
        self._assert_initialized()
        return self._worker._arm()

    @nvtx_annotate("UCXPY_PROGRESS", color="blue", domain="ucxpy")
    def progress(self) -> None:
        """Make progress until nothing is left to do. Not inside a callback."""
        self._assert_initialized()
        now = time.monotonic()
        if self._progress():
            self._looked = now
        elif now - self._looked > _LOOK_SECONDS and not self._worker.closed:
            # The library looks only now and then at what had nothing to do for a while; arming looks at once.
            self._looked = now
            if not self._worker._arm():
                self._progress()

    def _progress(self) -> bool:
        worked = False
        while not self._closed and self._worker.progress():  # a callback may have closed it
            worked = True
        return worked

    def request_cancel(self, req: UCXRequest) -> None:
        """Cancel a request; its callback gets UCXCanceled."""
        if one("req", req, UCXRequest)._operation is not None:
            req._operation.cancel_request()

    def fence(self) -> int:
        """Operations posted later take effect after those posted before."""
        self._assert_initialized()
        return _core.fence(self._worker.id)

    def get_address(self) -> UCXAddress:
        """The address by which others connect to this worker."""
        self._assert_initialized()
        return UCXAddress.from_worker(self)

    def tag_probe(self, tag: int) -> bool:
        """Whether a message with exactly this tag has arrived."""
        self._assert_initialized()
        self._worker.progress()
        return self._worker.probe(tag_number(tag)) is not None

    def flush(
        self,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> UCXRequest | None:
        """Complete everything posted before on all endpoints."""
        self._assert_initialized()
        return flush(self._worker.flush, callback(cb_func, cb_args, cb_kwargs))

    def info(self) -> str:
        """UCX's description."""
        self._assert_initialized()
        return self._worker.info()

    def cancel_inflight_messages(self) -> int:
        """Cancel what endpoints left behind that failed or were closed; how much that was. Callbacks have been called
        when it returns."""
        count = self._cancel_scheduled()
        if count and not self._closed:
            self._progress()
        return count

    def _cancel_scheduled(self) -> int:
        """The same, but the callbacks are left to who makes progress."""
        count = 0
        scheduled, self._to_cancel = self._to_cancel, []
        for cancel in scheduled:
            count += cancel()
        return count

    def _cancel_later(self, *cancels: Callable[[], int]) -> None:
        """Not at once: we are in the midst of progress."""
        self._to_cancel += cancels
        if self._loop_cancels and self._to_cancel:
            with contextlib.suppress(RuntimeError):
                asyncio.get_running_loop().call_soon(self._cancel_scheduled)

    def close(self) -> None:
        """Close it; again is allowed."""
        for child in list(self._children):
            if isinstance(child, UCXEndpoint):
                child.close_soon()  # all of them, so that peers that do not answer are waited for together
        super().close()

    def _leaves(self, endpoint: _Endpoint) -> None:
        """It is being closed; if that takes too long once the worker is, it is aborted."""
        self._leaving = [e for e in self._leaving if e._state != "closed"] + [endpoint]

    def _finalize(self) -> None:
        self._cancel_scheduled()
        for patient in list(self._patient):
            patient._give_up()
        for endpoint in self._peers.values():
            endpoint.abort()
        self._peers.clear()
        with contextlib.suppress(ForkedError):  # in a child there is nothing to be closed
            self._close_wait(self._patience)
            if not self._worker.closed:
                for endpoint in self._leaving:
                    endpoint.abort()  # the peers make no progress
                self._close_wait(1.0)

    def _close_wait(self, seconds: float) -> None:
        """Close it, at most so long. Its peers may be other workers of this process, which nobody looks after now."""
        end = time.monotonic() + seconds
        while not self._worker.closed and (left := end - time.monotonic()) > 0:
            others = [worker for worker in workers if worker is not self and worker.initialized]
            for other in others:
                other._worker._answer()
            self._worker.close_wait(min(left, _ANSWER_SECONDS) if others else left)
