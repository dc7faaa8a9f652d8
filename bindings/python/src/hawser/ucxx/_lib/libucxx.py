"""UCXX's workers, endpoints and listeners over those of hawser.ucp.

Everything is posted at once, by whoever calls: delayed submission and Python futures are accepted
and change nothing.
"""

from __future__ import annotations

import enum
import functools
import logging
import select
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from hawser._errors import HawserError
from hawser.ucp._libs import config, ucx_api
from hawser.ucp._libs._endpoint import AM_ID, UNTAKEN
from hawser.ucp._libs._request import Call, posted, view_of
from hawser.ucp._libs._transfer import array_for
from hawser.ucp._libs.exceptions import translate
from hawser.ucp._libs.ucx_api import AllocatorType, Feature, get_current_options, get_ucx_version

from ..exceptions import *  # noqa: F403
from ..exceptions import UCXError, convert
from . import multi
from .arr import Array, asarray
from .requests import AmOutcome, MultiOutcome, Outcome, UCXBufferRequest, UCXBufferRequests, UCXRequest, empty

logger = logging.getLogger("ucx")

_ALL = (1 << 64) - 1
_LONGEST_MS = 100


class PythonRequestNotifierWaitState(enum.Enum):
    """What waiting for notifications came to."""

    Ready = 0
    Timeout = 1
    Shutdown = 2


class PythonAmSendMemoryTypePolicy(enum.Enum):
    """What becomes of a kind of memory that the receiver has no allocator for."""

    FallbackToHost = 0
    ErrorOnUnsupported = 1


class _Number:
    """An unsigned number of 64 bits with a name of its own."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        if not hasattr(value, "__index__") and not hasattr(value, "__int__"):  # int() takes strings, too
            raise TypeError(f"an integer is required, not {type(value).__name__}")
        number = int(value)
        if not 0 <= number <= _ALL:
            raise OverflowError(f"{number} is no unsigned number of 64 bits")
        self._value = number

    @property
    def value(self) -> int:
        """The number."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self._value == other
        return type(other) is type(self) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __int__(self) -> int:
        return self._value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


class UCXXTag(_Number):
    """A tag."""


class UCXXTagMask(_Number):
    """Which bits of a tag count."""


UCXXTagMaskFull = UCXXTagMask(_ALL)


def _converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Raises UCXX's exceptions instead of UCX-Py's."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as e:
            converted = convert(e)
            if converted is e:
                raise
            raise converted from e

    return call


class UCXConfig:
    """The options that UCX would have."""

    @_converted
    def __init__(self, user_options: dict[str, str] | None = None) -> None:
        self.config = config.read(user_options)


class UCXAddress(ucx_api.UCXAddress):
    """The address of a worker. Made by the class methods."""

    def __new__(cls, *data: bytes) -> UCXAddress:
        if not data:
            raise TypeError("UCXAddress is made by its class methods")
        return super().__new__(cls, *data)

    @classmethod
    def create_from_worker(cls, worker: UCXWorker) -> UCXAddress:
        """The address of a worker."""
        return cls.from_worker(worker)  # type: ignore[return-value]

    @classmethod
    def create_from_buffer(cls, buf: Any) -> UCXAddress:
        """An address that came as bytes."""
        return cls.from_buffer(buf)  # type: ignore[return-value]

    create_from_string = create_from_buffer

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    def tobytes(self) -> bytes:
        """Its bytes."""
        return bytes(self)


class UCXContext(ucx_api.UCXContext):
    """One UCX context. config_dict: options without the prefix UCX_."""

    _plain_rma = False  # there is no remote memory in UCXX's Python API

    @_converted
    def __init__(
        self,
        config_dict: dict[str, str] | None = None,
        feature_flags: Iterable[Feature] = ucx_api.DEFAULT_FEATURES,
    ) -> None:
        super().__init__(config_dict or {}, feature_flags)

    @property
    def config(self) -> dict[str, str]:
        """Its options, without the prefix UCX_."""
        return self.get_config()

    @property
    def feature_flags(self) -> int:
        """UCP's flags."""
        return sum(feature.value for feature in self._features)

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    @property
    def info(self) -> str:  # type: ignore[override]
        """UCX's description."""
        return self._context.info()


class TagProbeResult:
    """Whether a message is there, and which. What is not there has no further attributes."""

    def __init__(self, found: Any, removed: bool) -> None:
        self._found = found
        self._removed = removed

    @property
    def matched(self) -> bool:
        """Whether it is there."""
        return self._found is not None

    def _message(self) -> Any:
        if self._found is None:
            raise AttributeError("No message was matched")
        return self._found

    @property
    def sender_tag(self) -> UCXXTag:
        """Its tag."""
        return UCXXTag(self._message().tag)

    @property
    def length(self) -> int:
        """Its length in bytes."""
        return int(self._message().length)

    @property
    def handle(self) -> int | None:
        """A number that names it, if it was removed and is not received yet."""
        message = self._message()
        return message._id or None if self._removed else None

    def _take(self) -> Any:
        if self._found is None:
            raise ValueError("the TagProbeResult has matched no message")
        if self.handle is None:
            raise RuntimeError(f"the message was {'received already' if self._removed else 'not removed'}")
        return self._found

    def __bool__(self) -> bool:
        return self.matched

    def __repr__(self) -> str:
        if not self.matched:
            return "TagProbeResult(matched=False)"
        what = f"sender_tag={self.sender_tag}, length={self.length}, handle={self.handle}"
        return f"TagProbeResult(matched=True, {what})"


class UCXWorker(ucx_api.UCXWorker):
    """A worker of a context."""

    @_converted
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
        return UCXEndpoint.create(self, ip_address, port, endpoint_error_handling)

    def create_endpoint_from_worker_address(
        self, address: UCXAddress, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        """Connect to a worker."""
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
        self._on_start = functools.partial(cb_func, *(cb_args or ()), **(cb_kwargs or {}))

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
        return TagProbeResult(look(int(tag), int(tag_mask)), remove)

    @_converted
    def tag_recv(self, arr: Array, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull) -> UCXRequest:
        """Receive a message of at most the array's size."""
        return _tag_recv(self, arr, tag, tag_mask)

    async def _tag_received(self, arr: Any, tag: Any) -> None:
        """tag_recv(), awaited; cancelled, it takes no message."""
        array = array_for(self._context, Feature.TAG, arr)
        try:
            await self._worker.recv(view_of(array, array.nbytes, True), int(tag))
        except HawserError as e:
            raise convert(translate(e, "tag_recv")) from e

    @_converted
    def tag_recv_with_handle(self, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
        """Receive a message that tag_probe() removed."""
        return _recv_removed(self, arr, probe_result)

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


# ---- Requests ----


def _start(
    outcome: Outcome,
    operation: Any,
    name: str,
    owner: UCXEndpoint | None = None,
    ended: Callable[..., None] | None = None,
) -> None:
    """Have the end of an operation be that of `outcome`, unless `ended` says what it is."""
    outcome.call = operation
    call = Call(operation, ended or outcome.ended, None, None, name, owner=owner)
    if operation.done():
        call.call()
    else:
        call.start()


def _started(worker: UCXWorker, operation: Any, name: str, receives: bool, owner: UCXEndpoint | None) -> UCXRequest:
    outcome = Outcome(receives)
    _start(outcome, operation, name, owner)
    return UCXRequest(worker, outcome)


def _tag_recv(worker: UCXWorker, arr: Any, tag: Any, mask: Any, owner: UCXEndpoint | None = None) -> UCXRequest:
    array = array_for(worker._context, Feature.TAG, arr)
    view = view_of(array, array.nbytes, True)
    operation = posted(worker._worker.recv, "tag_recv", view, int(tag), int(mask))
    return _started(worker, operation, "tag_recv", True, owner)


def _recv_removed(worker: UCXWorker, arr: Any, probe_result: TagProbeResult) -> UCXRequest:
    if not isinstance(probe_result, TagProbeResult):
        raise TypeError(f"a TagProbeResult is needed, not {type(probe_result).__name__}")
    message = probe_result._take()
    array = asarray(arr)
    operation = posted(message.recv, "tag_recv_with_handle", view_of(array, array.nbytes, True))
    return _started(worker, operation, "tag_recv_with_handle", False, None)


# ---- Endpoints ----


class UCXEndpoint(ucx_api.UCXEndpoint):
    """A connection. Made by the class methods."""

    worker: UCXWorker

    def __init__(self, worker: UCXWorker, endpoint: Any, endpoint_error_handling: bool) -> None:
        self._am_headers: deque[bytes] = deque()
        self._multi_receives = multi.Receives()
        super().__init__(worker, endpoint, endpoint_error_handling)

    @classmethod
    def create(cls, worker: Any, ip_address: str, port: int, endpoint_error_handling: bool = True) -> UCXEndpoint:
        """Connect to a listener."""
        make = _converted(super().create)
        return make(worker, ip_address, port, endpoint_error_handling)

    @classmethod
    def create_from_worker_address(
        cls, worker: Any, address: ucx_api.UCXAddress, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        """Connect to a worker."""
        make = _converted(super().create_from_worker_address)
        return make(worker, address, endpoint_error_handling)

    @classmethod
    def create_from_conn_request(  # type: ignore[override]
        cls, listener: UCXListener, conn_request: int, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        """Take a connection that a listener's callback told of."""
        return listener.create_endpoint_from_conn_request(conn_request, endpoint_error_handling)

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    @property
    def worker_handle(self) -> int:
        """The worker's handle."""
        return self.worker.handle

    @property
    def ucxx_worker_ptr(self) -> int:
        """A number that names the worker."""
        return self.worker.ucxx_ptr

    @property
    def alive(self) -> bool:
        """Whether it is open and the peer is there."""
        return not self._closed and self.is_alive()

    @_converted
    def raise_on_error(self) -> None:
        """Raise what became of the connection, if it failed; who closed it knows."""
        if not self._closed:
            super().raise_on_error()

    # ---- Transfers ----

    def _sent(self, outcome: Outcome, name: str, post: Callable[..., Any], *args: Any) -> Outcome:
        """Have `outcome` be that of what is posted; to a peer that is gone it fails, and the call does not."""
        try:
            operation = post(*args)
        except HawserError as e:
            outcome.end(self._why_gone(e))
        else:
            _start(outcome, operation, name, self)
        return outcome

    def _why_gone(self, refusal: HawserError) -> Exception:
        try:
            self.raise_on_error()
        except UCXError as e:
            return e
        raise refusal

    @_converted
    def tag_send(self, arr: Array, tag: UCXXTag) -> UCXRequest:
        """Send a tagged message."""
        array = array_for(self.worker._context, Feature.TAG, arr)
        view = view_of(array, array.nbytes, False)
        return UCXRequest(self.worker, self._sent(Outcome(), "tag_send", self._endpoint.send, view, int(tag)))

    @_converted
    def tag_recv(self, arr: Array, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull) -> UCXRequest:
        """Receive a message of at most the array's size."""
        return _tag_recv(self.worker, arr, tag, tag_mask, self)

    @_converted
    def tag_recv_with_handle(self, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
        """Receive a message that tag_probe() removed."""
        return _recv_removed(self.worker, arr, probe_result)

    @_converted
    def tag_send_multi(self, arrays: Iterable[Array], tag: UCXXTag) -> UCXBufferRequests:
        """Send arrays as one message."""
        self.worker._context._need(Feature.TAG)
        arrays = [array_for(self.worker._context, Feature.TAG, array) for array in arrays]
        if self._by_address:
            return UCXBufferRequests(self.worker, multi.send(self, arrays, int(tag)))
        views = [view_of(a, a.nbytes, False) for a in arrays]
        outcome = MultiOutcome(parts=len(views))
        self._sent(outcome, "tag_send_multi", self._endpoint.send_multi, views, int(tag))
        return UCXBufferRequests(self.worker, outcome)

    @_converted
    def tag_recv_multi(self, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull) -> UCXBufferRequests:
        """Receive buffers that were sent as one message."""
        self.worker._context._need(Feature.TAG)
        if self._by_address:
            return self._recv_multi_by_address(int(tag), int(tag_mask))
        outcome = MultiOutcome(receives=True)
        outcome.call = operation = self._endpoint.recv_multi(int(tag), int(tag_mask))
        operation._on_end(outcome.listed)
        return UCXBufferRequests(self.worker, outcome)

    def _recv_multi_by_address(self, tag: int, mask: int) -> UCXBufferRequests:
        worker, receives = self.worker, self._multi_receives
        self._inflight.add(receives)  # type: ignore[arg-type]
        outcome = multi.receive(worker._worker, receives, worker._multi_lines, tag, mask)
        if not self.is_alive():
            worker._cancel_later(outcome.cancel_request)
        return UCXBufferRequests(worker, outcome)

    def _stream_view(self, arr: Any, writable: bool) -> Any:
        array = asarray(arr)
        if array.nbytes == 0:
            raise RuntimeError("A stream carries no message of 0 bytes")
        array_for(self.worker._context, Feature.STREAM, array)
        return view_of(array, array.nbytes, writable)

    @_converted
    def stream_send(self, arr: Array) -> UCXRequest:
        """Send bytes on the stream."""
        view = self._stream_view(arr, False)
        return UCXRequest(self.worker, self._sent(Outcome(), "stream_send", self._endpoint.stream_send, view))

    @_converted
    def stream_recv(self, arr: Array) -> UCXRequest:
        """Fill an array from the stream."""
        operation = self._endpoint.stream_recv(self._stream_view(arr, True), True)
        return _started(self.worker, operation, "stream_recv", True, self)

    @_converted
    def am_send(
        self,
        arr: Array,
        memory_type_policy: PythonAmSendMemoryTypePolicy | None = None,
        user_header: bytes = b"",
    ) -> UCXRequest:
        """Send an active message with a header."""
        array = array_for(self.worker._context, Feature.AM, arr)
        header = (b"\1\0\0\0" if array.cuda else b"\0\0\0\0") + bytes(user_header or b"")
        view = view_of(array, array.nbytes, False)
        return UCXRequest(self.worker, self._sent(Outcome(), "am_send", self._endpoint.send_am, view, AM_ID, header))

    def am_send_iov(
        self,
        arrays: Iterable[Array],
        memory_type_policy: PythonAmSendMemoryTypePolicy | None = None,
        user_header: bytes = b"",
    ) -> UCXRequest:
        """Send host arrays as one active message; they are copied together."""
        joined = b"".join(bytes(memoryview(asarray(a).source).cast("B")) for a in arrays)
        return self.am_send(Array(joined), memory_type_policy, user_header)

    def am_recv(self) -> UCXRequest:
        """Receive the next active message: recv_buffer and recv_header of the request."""
        self.worker._context._need(Feature.AM)
        outcome = AmOutcome(receives=True)

        def received(data: Any, exception: Exception | None) -> object:
            if outcome.completed:
                return UNTAKEN  # it was cancelled
            if len(self._am_headers) > len(self._am_slots):
                outcome.recv_header = self._am_headers.popleft()
            outcome.recv_buffer = data
            outcome.end(exception)
            return None

        self._am_recv(received, (), {})
        return UCXRequest(self.worker, outcome)

    def _am_give_back(self, request: UCXRequest) -> None:
        """Who waited for it was interrupted before it went on: it is the next one's."""
        if request.status == 0:
            self._am_headers.appendleft(request.recv_header)
            self._am_untaken(request.recv_buffer)

    def _am_take(self, header: bytes, data: Any) -> None:
        self._am_headers.append(bytes(header[4:]))
        super()._am_take(header, data)

    # ---- Closing ----

    def set_close_callback(
        self,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Call it once, when the peer is gone or this is closed."""
        if self._closed or not self.is_alive():
            raise RuntimeError("The endpoint is closed")
        super().set_close_callback(functools.partial(cb_func, *(cb_args or ()), **(cb_kwargs or {})))

    def remove_close_callback(self) -> None:
        """Call nothing."""
        self._close_callback = None

    def close(self) -> UCXRequest:  # type: ignore[override]
        """Complete what was sent and close; the request ends when it is closed."""
        self.close_soon()
        outcome = Outcome()
        self._endpoint.close()._on_end(lambda _operation: outcome.end(None))
        return UCXRequest(self.worker, outcome)

    def close_blocking(self, period: int = 0, max_attempts: int = 1) -> None:
        """Complete what was sent and close."""
        super().close()


class UCXListener(ucx_api.UCXListener):
    """Calls `cb_func(conn_request, *cb_args, **cb_kwargs)` for each peer, or with an endpoint instead."""

    enable_python_future = False

    @classmethod
    @_converted
    def create(
        cls,
        worker: UCXWorker,
        port: int,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
        deliver_endpoint: bool = False,
        endpoint_error_handling: bool = True,
    ) -> UCXListener:
        """Listen. deliver_endpoint: the callback gets a UCXEndpoint."""
        if deliver_endpoint:
            cb_func = functools.partial(_deliver, worker, endpoint_error_handling, cb_func)
        return cls(worker, port, cb_func, cb_args, cb_kwargs)

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    def create_endpoint_from_conn_request(self, conn_request: int, endpoint_error_handling: bool = True) -> UCXEndpoint:
        """Take a connection that the callback told of."""
        return _taken(self._worker, conn_request, endpoint_error_handling)  # type: ignore[arg-type]


def _taken(worker: UCXWorker, conn_request: int, endpoint_error_handling: bool) -> UCXEndpoint:
    return UCXEndpoint(worker, worker._peers.pop(conn_request), endpoint_error_handling)


def _deliver(
    worker: UCXWorker,
    endpoint_error_handling: bool,
    cb_func: Callable[..., None],
    conn_request: int,
    *args: Any,
    **kwargs: Any,
) -> None:
    cb_func(_taken(worker, conn_request, endpoint_error_handling), *args, **kwargs)


__all__ = [
    "Feature",
    "PythonAmSendMemoryTypePolicy",
    "PythonRequestNotifierWaitState",
    "TagProbeResult",
    "UCXAddress",
    "UCXBufferRequest",
    "UCXBufferRequests",
    "UCXConfig",
    "UCXContext",
    "UCXEndpoint",
    "UCXListener",
    "UCXRequest",
    "UCXWorker",
    "UCXXTag",
    "UCXXTagMask",
    "UCXXTagMaskFull",
    "get_current_options",
    "get_ucx_version",
]
