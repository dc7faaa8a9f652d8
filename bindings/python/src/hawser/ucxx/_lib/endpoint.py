"""UCXX's endpoints."""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hawser import _core
from hawser._check import each, octets, one
from hawser._errors import HawserError
from hawser.ucp._libs import ucx_api
from hawser.ucp._libs._endpoint import AM_ID, UNTAKEN
from hawser.ucp._libs._request import Callback, callback, view_of
from hawser.ucp._libs._transfer import array_for
from hawser.ucp._libs.ucx_api import Feature

from ..exceptions import UCXError
from . import multi
from .arr import Array, asarray
from .converted import converted
from .enums import PythonAmSendMemoryTypePolicy
from .posting import post_tag_recv, recv_removed, start, started
from .requests import AmOutcome, MultiOutcome, Outcome, UCXBufferRequests, UCXRequest
from .tags import TagProbeResult, UCXXTag, UCXXTagMask, UCXXTagMaskFull, number_of
from .worker import UCXWorker

if TYPE_CHECKING:
    from .listener import UCXListener

logger = logging.getLogger("ucx")


def _bytes_of(array: Array) -> bytes:
    """A copy of a host array."""
    data = memoryview(array.source).cast("B")  # refused where it has gaps
    _core.memory(array.source)  # refused where it holds Python objects
    return bytes(data)


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
        make = converted(super().create)
        return make(worker, ip_address, port, endpoint_error_handling)

    @classmethod
    def create_from_worker_address(
        cls, worker: Any, address: ucx_api.UCXAddress, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        """Connect to a worker."""
        make = converted(super().create_from_worker_address)
        return make(worker, address, endpoint_error_handling)

    @classmethod
    def create_from_conn_request(  # type: ignore[override]
        cls, listener: UCXListener, conn_request: int, endpoint_error_handling: bool = True
    ) -> UCXEndpoint:
        """Take a connection that a listener's callback told of."""
        one("listener", listener, ucx_api.UCXListener)
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

    @converted
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
            start(outcome, operation, name, self)
        return outcome

    def _why_gone(self, refusal: HawserError) -> Exception:
        try:
            self.raise_on_error()
        except UCXError as e:
            return e
        raise refusal

    @converted
    def tag_send(self, arr: Array, tag: UCXXTag) -> UCXRequest:
        """Send a tagged message."""
        array = array_for(self.worker._context, Feature.TAG, arr)
        view = view_of(array, array.nbytes, False)
        return UCXRequest(
            self.worker, self._sent(Outcome(), "tag_send", self._endpoint.send, view, number_of("tag", tag))
        )

    @converted
    def tag_recv(self, arr: Array, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull) -> UCXRequest:
        """Receive a message of at most the array's size."""
        return post_tag_recv(self.worker, arr, tag, tag_mask, self)

    @converted
    def tag_recv_with_handle(self, arr: Array, probe_result: TagProbeResult) -> UCXRequest:
        """Receive a message that tag_probe() removed."""
        return recv_removed(self.worker, arr, probe_result)

    @converted
    def tag_send_multi(self, arrays: Iterable[Array], tag: UCXXTag) -> UCXBufferRequests:
        """Send arrays as one message."""
        self.worker._context._need(Feature.TAG)
        wire = number_of("tag", tag)
        arrays = [array_for(self.worker._context, Feature.TAG, array) for array in each("arrays", arrays)]
        if self._by_address:
            return UCXBufferRequests(self.worker, multi.send(self, arrays, wire))
        views = [view_of(a, a.nbytes, False) for a in arrays]
        outcome = MultiOutcome(parts=len(views))
        self._sent(outcome, "tag_send_multi", self._endpoint.send_multi, views, wire)
        return UCXBufferRequests(self.worker, outcome)

    @converted
    def tag_recv_multi(self, tag: UCXXTag, tag_mask: UCXXTagMask = UCXXTagMaskFull) -> UCXBufferRequests:
        """Receive buffers that were sent as one message."""
        self.worker._context._need(Feature.TAG)
        wire, mask = number_of("tag", tag), number_of("tag_mask", tag_mask)
        if self._by_address:
            return self._recv_multi_by_address(wire, mask)
        outcome = MultiOutcome(receives=True)
        outcome.call = operation = self._endpoint.recv_multi(wire, mask)
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

    @converted
    def stream_send(self, arr: Array) -> UCXRequest:
        """Send bytes on the stream."""
        view = self._stream_view(arr, False)
        return UCXRequest(self.worker, self._sent(Outcome(), "stream_send", self._endpoint.stream_send, view))

    @converted
    def stream_recv(self, arr: Array) -> UCXRequest:
        """Fill an array from the stream."""
        operation = self._endpoint.stream_recv(self._stream_view(arr, True), True)
        return started(self.worker, operation, "stream_recv", True, self)

    @converted
    def am_send(
        self,
        arr: Array,
        memory_type_policy: PythonAmSendMemoryTypePolicy | None = None,
        user_header: bytes = b"",
    ) -> UCXRequest:
        """Send an active message with a header."""
        array = array_for(self.worker._context, Feature.AM, arr)
        if memory_type_policy is not None:
            one("memory_type_policy", memory_type_policy, PythonAmSendMemoryTypePolicy)
        user = b"" if user_header is None else octets("user_header", user_header)
        header = (b"\1\0\0\0" if array.cuda else b"\0\0\0\0") + user
        view = view_of(array, array.nbytes, False)
        return UCXRequest(self.worker, self._sent(Outcome(), "am_send", self._endpoint.send_am, view, AM_ID, header))

    def am_send_iov(
        self,
        arrays: Iterable[Array],
        memory_type_policy: PythonAmSendMemoryTypePolicy | None = None,
        user_header: bytes = b"",
    ) -> UCXRequest:
        """Send host arrays as one active message; they are copied together."""
        joined = b"".join(_bytes_of(asarray(a)) for a in each("arrays", arrays))
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

        self._am_recv(Callback(received))
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

    def set_close_callback(  # type: ignore[override]
        self,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Call it once, when the peer is gone or this is closed."""
        if self._closed or not self.is_alive():
            raise RuntimeError("The endpoint is closed")
        given = callback(cb_func, cb_args, cb_kwargs)
        super().set_close_callback(functools.partial(given.func, *given.args, **given.kwargs))

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
