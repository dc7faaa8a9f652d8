"""UCXX's workers."""

from __future__ import annotations

import functools
import logging
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawser._check import integer
from hawser._errors import HawserError
from hawser.ucp._libs import ucx_api
from hawser.ucp._libs._request import callback, view_of
from hawser.ucp._libs._transfer import array_for
from hawser.ucp._libs.exceptions import translate
from hawser.ucp._libs.ucx_api import AllocatorType, Feature

from ..exceptions import convert
from . import multi
from .arr import Array
from .context import UCXAddress, UCXContext
from .converted import converted
from .enums import PythonRequestNotifierWaitState
from .posting import post_tag_recv, recv_removed
from .requests import UCXRequest, empty
from .tags import TagProbeResult, UCXXTag, UCXXTagMask, UCXXTagMaskFull, number_of

if TYPE_CHECKING:
    from .endpoint import UCXEndpoint


logger = logging.getLogger("ucx")
_LONGEST_MS = 100


class UCXWorker(ucx_api.UCXWorker):
    """A worker of a context."""

    @converted
    def __init__(
        self,
        context: UCXContext,
        enable_delayed_submission: bool = False,
        enable_python_future: bool = False,
    ) -> None:
        super().__init__(context)
        self.enable_delayed_submission = enable_delayed_submission
        self.enable_python_future = enable_python_future
        self.cuda_buffer_type = None
        self._allocators[AllocatorType.HOST] = empty
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._on_start: Callable[[], None] | None = None
        self._multi_lines: dict[tuple[int, int], multi.Line] = {}

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    @property
    def info(self) -> str:  # type: ignore[override]
        """UCX's description."""
        return self._worker.info()

    @property
    def address(self) -> UCXAddress:
        """The address by which others connect to this worker."""
        return UCXAddress.create_from_worker(self)

    @property
    def epoll_file_descriptor(self) -> int:
        """Readable when an armed worker has work."""
        return self._worker.fd

    @property
    def _is_progressed(self) -> bool:
        return self._thread is not None

    def create_endpoint_from_hostname(
        self, ip_address: str, port: int, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        """Connect to a listener."""
        from .endpoint import UCXEndpoint

        return UCXEndpoint.create(self, ip_address, port, endpoint_error_handling)

    def create_endpoint_from_worker_address(
        self, address: UCXAddress, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        """Connect to a worker."""
        from .endpoint import UCXEndpoint

        return UCXEndpoint.create_from_worker_address(self, address, endpoint_error_handling)

    # ---- Progress ----

    def init_blocking_progress_mode(self) -> None:  # type: ignore[override]
        """Nothing is needed for it."""

    def progress(self) -> None:
        """Make progress until nothing is left to do; what waits for a peer that is gone is cancelled then."""
        super().progress()
        if self.cancel_inflight_messages():
            super().progress()

    def progress_once(self) -> bool:
        """One round of progress; whether it did anything."""
        return bool(self._worker.progress())

    def progress_worker_event(self, epoll_timeout: int = -1) -> None:
        """Make progress; if there was none to make sleep until there is, at most so many ms."""
        epoll_timeout = integer("epoll_timeout", epoll_timeout)
        if self._worker.progress() or not self.arm():
            return
        _sleep(self._worker, _LONGEST_MS if epoll_timeout < 0 else min(epoll_timeout, _LONGEST_MS))
        self.progress()

    def set_progress_thread_start_callback(
        self,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Call it at the start of the progress thread."""
        given = callback(cb_func, cb_args, cb_kwargs)
        self._on_start = functools.partial(given.func, *given.args, **given.kwargs)

    def start_progress_thread(self, polling_mode: bool = False, epoll_timeout: int = -1) -> None:
        """Have a thread make progress."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(
                target=_progress_thread, args=(self._worker, self._stop, self._on_start, polling_mode), daemon=True
            )
            self._thread.start()

    def stop_progress_thread(self) -> None:
        """End that thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            self._worker.signal()
            if thread is not threading.current_thread():
                thread.join()

    def cancel_inflight_requests(self, period: int = 0, max_attempts: int = 1) -> int:
        """Cancel what endpoints left behind that failed or were closed; how much that was."""
        return self.cancel_inflight_messages()

    def _finalize(self) -> None:
        self.stop_progress_thread()
        super()._finalize()

    # ---- Messages of any peer ----

    def tag_probe(  # type: ignore[override]
        self, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull, remove: bool = False
    ) -> TagProbeResult:
        """Look for a message; remove: only recv_with_handle() gets it then."""
        self._worker.progress()
        look = self._worker.take if remove else self._worker.probe
        return TagProbeResult(look(number_of("tag", tag), number_of("tag_mask", tag_mask)), remove)

    @converted
    def tag_recv(self, arr: Array, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull) -> UCXRequest:
        """Receive a message of at most the array's size."""
        return post_tag_recv(self, arr, tag, tag_mask)

    async def _tag_received(self, arr: Any, tag: Any) -> None:
        """tag_recv(), awaited; cancelled, it takes no message."""
        array = array_for(self._context, Feature.TAG, arr)
        try:
            await self._worker.recv(view_of(array, array.nbytes, True), number_of("tag", tag))
        except HawserError as e:
            raise convert(translate(e, "tag_recv")) from e

    @converted
    def tag_recv_with_handle(self, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
        """Receive a message that tag_probe() removed."""
        return recv_removed(self, arr, probe_result)

    # ---- Futures: completions find their loop by themselves ----

    def stop_request_notifier_thread(self) -> None:
        """There is none."""

    def wait_request_notifier(self, period_ns: int = 0) -> PythonRequestNotifierWaitState:
        """Nothing ever waits to be notified."""
        return PythonRequestNotifierWaitState.Shutdown

    def run_request_notifier(self) -> None:
        """Nothing ever waits to be notified."""

    def populate_python_futures_pool(self) -> None:
        """There is no pool."""

    def clear_python_futures_pool(self) -> None:
        """There is no pool."""


def _sleep(worker: Any, milliseconds: int) -> None:
    """Until an armed worker has work. Not by select(), which takes no descriptor above 1023."""
    poll = select.poll()
    poll.register(worker.fd, select.POLLIN)
    poll.poll(milliseconds)


def _progress_thread(worker: Any, stop: threading.Event, on_start: Callable[[], None] | None, polling: bool) -> None:
    if on_start is not None:
        try:
            on_start()
        except Exception:
            logger.exception("the start callback of the progress thread failed; the thread goes on")
    while not stop.is_set():
        if not worker.progress() and not polling and worker._arm():
            _sleep(worker, _LONGEST_MS)
