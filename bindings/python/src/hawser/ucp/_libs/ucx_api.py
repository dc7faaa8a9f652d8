"""The synchronous, callback-driven core of UCX-Py over hawser.

Every `*_nb` call takes `cb_func(request, exception, *cb_args, **cb_kwargs)` and returns None if it is
done already, else a UCXRequest. Callbacks run inside UCXWorker.progress(); what they raise is logged.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import enum
import io
import itertools
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from operator import index
from typing import Any

from hawser import _constants as c
from hawser import _core
from hawser._context import Context
from hawser._endpoint import Endpoint as _Endpoint
from hawser._endpoint import connect as _connect
from hawser._errors import ForkedError
from hawser._unique import Unique
from hawser._worker import Worker as _Worker

from . import config as _config
from .arr import Array, asarray
from .exceptions import (  # noqa: F401 (programs find UCX-Py's exceptions here too)
    LOST,
    ErrorCode,
    HawserError,
    UCXBaseException,
    UCXCanceled,
    UCXCloseError,
    UCXConfigError,
    UCXConnectionReset,
    UCXError,
    UCXMsgTruncated,
    UCXNotConnected,
    UCXPeerLost,
    UCXUnreachable,
    log_errors,
    translate,
    translate_receive,
)
from .utils import get_address, nvtx_annotate  # noqa: F401

logger = logging.getLogger("ucx")

# Active messages of this module; the others are free for programs that use hawser besides.
_AM_ID = 0
_UNTAKEN = object()  # what a callback of am_recv_nb() returns to leave the message to the next one
_HANDSHAKE_SECONDS = 30.0
_CLOSE_SECONDS = 5.0
_ANSWER_SECONDS = 1e-3
_LOOK_SECONDS = 1e-3  # of calls of progress() that come more seldom each sees what has arrived
# A peer by address says no goodbye, and often makes no progress any more.
_PLAIN_CLOSE_NS = 1_000_000_000


class Feature(enum.Enum):
    """What a context can do; the values are UCP's flags."""

    TAG = 1
    RMA = 2
    AMO32 = 4
    AMO64 = 8
    WAKEUP = 16
    STREAM = 32
    AM = 64


#: What a context offers unless told otherwise.
DEFAULT_FEATURES = (Feature.TAG, Feature.WAKEUP, Feature.STREAM, Feature.AM, Feature.RMA)


class AllocatorType(enum.Enum):
    """Where an allocator's memory is."""

    HOST = 0
    CUDA = 1
    UNSUPPORTED = -1


_FEATURES = {
    Feature.TAG: ("tag",),
    Feature.STREAM: ("stream",),
    Feature.AM: ("am",),
    Feature.RMA: ("rma",),
}
# From here on UCX moves remote memory with its newer protocols only, which hawser leaves off otherwise.
_NEWER_PROTOCOLS = (1, 18, 0)


def get_current_options() -> dict[str, str]:
    """The options that a context would have now, without the prefix UCX_."""
    return _config.read()


def get_ucx_version() -> tuple[int, int, int]:
    """The version of the UCX that is loaded."""
    found = _core.library(None)
    return found["ucx_major"], found["ucx_minor"], found["ucx_release"]


def is_am_supported() -> bool:
    """Whether there are active messages: always. Programs written for UCX before 1.11 ask."""
    return True


class UCXObject(Unique):
    """Something that is closed once; closing it closes its children first."""

    _patience = 5.0  # how long closing may wait for peers, in seconds

    def __init__(self) -> None:
        self._closed = False
        self._children: weakref.WeakSet[UCXObject] = weakref.WeakSet()

    @property
    def initialized(self) -> bool:
        return not self._closed

    def _assert_initialized(self) -> None:
        """As the Cython classes that UCX-Py's programs know, also with -O."""
        if self._closed:
            raise AssertionError(f"the {type(self).__name__} is closed")

    def add_child(self, child: UCXObject) -> None:
        """Close `child` before this."""
        self._children.add(child)

    def close(self) -> None:
        """Close it; again is allowed."""
        if self._closed:
            return
        for child in list(self._children):
            child.close()
        self._closed = True
        self._finalize()

    def _finalize(self) -> None:
        """Give back what it holds; called once."""

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._patience = 0.05  # who forgot it did not mean to wait
            with contextlib.suppress(Exception):
                self.close()


class UCXContext(UCXObject):
    """One UCX context. config_dict: options without the prefix UCX_."""

    # Whether endpoints by worker address reach memory: UCX serves them itself, and any address they name.
    _plain_rma = True

    def __init__(
        self,
        config_dict: dict[str, str] = {},  # noqa: B006
        feature_flags: Iterable[Feature] = DEFAULT_FEATURES,
    ) -> None:
        self._closed = True
        self._config = _config.read(config_dict)
        self._features = frozenset(feature_flags)
        names = [name for f in self._features for name in _FEATURES.get(f, ())]
        options = dict(config_dict)
        if self._plain_rma and Feature.RMA in self._features:
            names.append("ucx_rma")
            if get_ucx_version() >= _NEWER_PROTOCOLS and "UCX_PROTO_ENABLE" not in os.environ:
                options.setdefault("PROTO_ENABLE", "y")
        try:
            self._context = Context(names or ["am"], options)
        except HawserError as e:
            raise translate(e, "ucp_init") from e
        super().__init__()
        self.cuda_support = _has_cuda(self._config["TLS"])

    def get_config(self) -> dict[str, str]:
        """The options of this context, without the prefix UCX_."""
        return dict(self._config)

    @property
    def handle(self) -> int:
        return self._context.id

    def map(self, mem: Any) -> UCXMemoryHandle:
        """Register a buffer, which must live until the handle is closed."""
        self._assert_initialized()
        return UCXMemoryHandle.map(self, mem)

    def alloc(self, size: int) -> UCXMemoryHandle:
        """Allocate and register at least `size` bytes."""
        self._assert_initialized()
        return UCXMemoryHandle.alloc(self, size)

    def info(self) -> str:
        """UCX's description."""
        self._assert_initialized()
        return self._context.info()

    def _need(self, feature: Feature) -> None:
        if feature not in self._features:
            raise ValueError(f"UCXContext must be created with `Feature.{feature.name}`")

    def _finalize(self) -> None:
        with contextlib.suppress(HawserError):
            self._context.close(min(self._patience, 2.0))


def _has_cuda(tls: str) -> bool:
    """Whether a list of transports lets CUDA in; it does not tell whether UCX was built with it."""
    if tls.startswith("^"):
        return not {"cuda", "cuda_copy"} & set(tls[1:].split(","))
    return bool({"all", "cuda", "cuda_copy", "cuda_ipc"} & set(tls.split(",")))


class UCXWorker(UCXObject):
    """A worker of a context."""

    # Whether peers may be programs that run UCX-Py itself: the asyncio API's handshake with them is another.
    of_ucxpy = False
    # Whoever blocks makes progress on all of them: both ends may be in this thread.
    _all: weakref.WeakSet[UCXWorker] = weakref.WeakSet()

    def __init__(self, context: UCXContext) -> None:
        self._closed = True
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
            self._worker.am_handler(_AM_ID, _am_arrived, defer=True)
        UCXWorker._all.add(self)

    @property
    def handle(self) -> int:
        return self._worker.id

    def register_am_allocator(self, allocator: Callable[[int], Any], allocator_type: AllocatorType) -> None:
        """Have active messages received into what `allocator(length)` gives."""
        if allocator_type is AllocatorType.UNSUPPORTED:
            raise UCXError("Allocator type not supported")
        self._allocators[allocator_type] = allocator

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
        while self._worker.progress():
            worked = True
        return worked

    def request_cancel(self, req: UCXRequest) -> None:
        """Cancel a request; its callback gets UCXCanceled."""
        if req._operation is not None:
            req._operation.cancel_request()

    def fence(self) -> int:
        """Operations posted later take effect after those posted before."""
        self._assert_initialized()
        return _core.fence(self._worker.id)

    def get_address(self) -> UCXAddress:
        """The address by which others connect to this worker."""
        return UCXAddress.from_worker(self)

    def tag_probe(self, tag: int) -> bool:
        """Whether a message with exactly this tag has arrived."""
        self._assert_initialized()
        self._worker.progress()
        return self._worker.probe(tag) is not None

    def flush(
        self,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> UCXRequest | None:
        """Complete everything posted before on all endpoints."""
        return _flush(self._worker.flush, cb_func, cb_args, cb_kwargs)

    def info(self) -> str:
        """UCX's description."""
        self._assert_initialized()
        return self._worker.info()

    def cancel_inflight_messages(self) -> int:
        """Cancel what endpoints left behind that failed or were closed; how much that was."""
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
                asyncio.get_running_loop().call_soon(self.cancel_inflight_messages)

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
        self.cancel_inflight_messages()
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
            others = [worker for worker in UCXWorker._all if worker is not self and worker.initialized]
            for other in others:
                other._worker._answer()
            self._worker.close_wait(min(left, _ANSWER_SECONDS) if others else left)


def _progress_all(over: Callable[[], bool], seconds: float) -> bool:
    """Make progress on every worker of this process until it is over; False if that takes too long."""
    end = time.monotonic() + seconds
    while not over():
        worked = 0
        for worker in list(UCXWorker._all):
            if worker.initialized:
                worked += worker._worker.progress()
        if worked == 0:
            if time.monotonic() > end:
                return False
            time.sleep(0)
    return True


# ---- Requests ----


class UCXRequest:
    """A communication that goes on."""

    _uids = itertools.count(1)

    def __init__(self, operation: Any = None) -> None:
        self._operation = operation
        self._uid = next(self._uids)
        self.info: dict[str, Any] = {"status": "pending"}
        self._is_closed = False

    def closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._operation = None

    @property
    def handle(self) -> int:
        return 0 if self._operation is None else self._operation.id

    def _finish(self) -> None:
        self.info["status"] = "finished"

    def __hash__(self) -> int:
        return self._uid

    def __eq__(self, other: object) -> bool:
        return hash(self) == hash(other)

    def __repr__(self) -> str:
        if self._is_closed:
            return "<UCXRequest closed>"
        return f"<UCXRequest handle={hex(self.handle)} uid={self._uid} info={self.info}>"


class _Call:
    """One request under way: when it ends the callback is called with what UCX-Py would say."""

    __slots__ = ("_args", "_expected", "_func", "_kwargs", "_name", "_operation", "_request", "owner")

    def __init__(
        self,
        operation: Any,
        func: Callable[..., None],
        args: tuple[Any, ...] | None,
        kwargs: dict[str, Any] | None,
        name: str,
        expected: int = -1,
        owner: UCXEndpoint | None = None,
    ) -> None:
        self._operation = operation
        self._func = func
        self._args = args or ()
        self._kwargs = kwargs or {}
        self._name = name
        self._expected = expected
        self._request: UCXRequest | None = None
        self.owner = owner

    @property
    def id(self) -> int:
        return 0 if self._operation is None else self._operation.id

    def start(self) -> UCXRequest:
        self._request = UCXRequest(self)
        if self.owner is not None:
            self.owner._inflight.add(self)
        self._operation._on_end(self._ended)
        if self.owner is not None and not self.owner.is_alive() and not self._operation.done():
            self.owner.worker._cancel_later(self.cancel_request)  # nobody is told of its peer's end any more
        return self._request

    def cancel_request(self) -> int:
        """Ask for the end; 1 if it has not ended yet."""
        if self._operation.done():
            return 0
        with contextlib.suppress(HawserError):
            _core.cancel(self._operation.id)
        return 1

    def exception(self) -> Exception | None:
        try:
            length = self._operation.result()
        except HawserError as e:
            return translate(e, self._name)
        return check_length(self._name, length, self._expected)

    def call(self) -> None:
        request = self._request or UCXRequest()
        request._finish()
        with log_errors():
            self._func(request, self.exception(), *self._args, **self._kwargs)

    def _ended(self, _operation: Any) -> None:
        if self.owner is not None:
            self.owner._inflight.discard(self)
        self.call()
        if self._request is not None:
            self._request._operation = None


class _Flush(_Call):
    """A peer that said goodbye has had everything that was sent before: UCX's flush succeeds then."""

    __slots__ = ()

    def exception(self) -> Exception | None:
        if self._operation is None or self._operation.status == ErrorCode.PEER_CLOSED:
            return None
        return super().exception()


def check_length(name: str, got: int, expected: int) -> UCXMsgTruncated | None:
    """A message that is shorter than the buffer is an error in UCX-Py."""
    if expected >= 0 and got != expected:
        return UCXMsgTruncated(f"{name}: length mismatch: {got} (got) != {expected} (expected)")
    return None


def _flush(
    post: Callable[[], Any],
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None,
    cb_kwargs: dict[str, Any] | None,
) -> UCXRequest:
    try:
        operation = post()
    except HawserError as e:
        if e.code != ErrorCode.PEER_CLOSED:
            raise translate(e, "flush") from e
        operation = None
    call = _Flush(operation, cb_func, cb_args, cb_kwargs, "flush")
    if operation is not None:
        return call.start()
    request = call._request = UCXRequest(call)
    call.call()
    return request


def _posted(post: Callable[..., Any], name: str, *args: Any) -> Any:
    try:
        return post(*args)
    except HawserError as e:
        raise translate(e, name) from e


def _check_fits(number: int, most: int, kind: str) -> None:
    """Raise OverflowError for what an unsigned number of C does not take, whose type is `kind`."""
    if not 0 <= number <= most:
        raise OverflowError(
            f"value too large to convert to {kind}" if number > 0 else f"can't convert negative value to {kind}"
        )


def _tag(tag: int) -> int:
    """A tag that is used as it is: one that was cut off would match messages of another."""
    number = index(tag)
    _check_fits(number, c.FOREVER, "ucp_tag_t")
    return number


class _CudaBytes:
    """The first bytes of an array in a GPU's memory."""

    def __init__(self, array: Array, nbytes: int) -> None:
        self._array = array  # holds the memory
        interface = {**array.source.__cuda_array_interface__, "shape": (nbytes,), "typestr": "|u1", "strides": None}
        self.__cuda_array_interface__ = {k: v for k, v in interface.items() if k != "descr"}


def _view(buffer: Array, nbytes: int, writable: bool) -> Any:
    """The first bytes of an array, as something to send or receive into."""
    if not buffer.contiguous:
        raise ValueError("Array must be C or F contiguous")
    if writable and buffer.readonly:
        raise ValueError("writing to readonly buffer!")
    _check_fits(nbytes, c.FOREVER, "size_t")
    if nbytes > buffer.nbytes:
        raise ValueError(f"{nbytes} bytes are more than the buffer has, {buffer.nbytes}")
    if nbytes == buffer.nbytes:
        return buffer.source
    if buffer.cuda:
        return _CudaBytes(buffer, nbytes)
    view = memoryview(buffer.source)
    return (view if view.format == "B" and view.ndim == 1 else view.cast("B"))[:nbytes]


# ---- Endpoints ----


def check_port(port: int | None) -> None:
    """As a C number of 16 bits takes it."""
    if port is not None:
        _check_fits(port, 0xFFFF, "uint16_t")


def unresolved(error: HawserError) -> socket.gaierror | None:
    """The error of a host name that there is not: UCX-Py looks names up by the socket module."""
    if error.code != ErrorCode.RESOLVE:
        return None
    return socket.gaierror(socket.EAI_NONAME, "Name or service not known")


class UCXEndpoint(UCXObject):
    """A connection. Made by the class methods."""

    def __init__(self, worker: UCXWorker, endpoint: _Endpoint, endpoint_error_handling: bool) -> None:
        super().__init__()
        self.worker = worker
        self._endpoint = endpoint
        self._handling = endpoint_error_handling
        self._by_address = False
        # A listener for UCX-Py serves Hawser's own programs besides.
        self.of_ucxpy = worker.of_ucxpy and endpoint.info()["reason"] == c.Reason.RAW
        self._inflight: set[_Call] = set()
        self._am_slots: collections.deque[list[Any]] = collections.deque()
        self._am_waiting: collections.deque[tuple[Any, ...]] = collections.deque()
        self._close_callback: Callable[[], None] | None = None
        # The ids of what the asyncio layer is sending; the rest is in _inflight.
        self._sends: Callable[[], Iterable[int]] = tuple
        self._send_on = 0.0  # seconds
        with _arriving:
            endpoint.owner = weakref.ref(self)
            early = endpoint.__dict__.pop("_early", ())
        endpoint.warns = False
        endpoint.on_disconnect = _disconnected
        worker.add_child(self)
        for header, data in early:
            self._am_take(header, data)
        if endpoint._error is not None:
            _disconnected(endpoint)

    @classmethod
    def create(cls, worker: UCXWorker, ip_address: str, port: int, endpoint_error_handling: bool) -> UCXEndpoint:
        """Connect to a listener."""
        assert worker.initialized
        check_port(port)
        connecting = _connect(ip_address, port, worker=worker._worker, timeout=_HANDSHAKE_SECONDS)
        _progress_all(connecting.operation.done, _HANDSHAKE_SECONDS + 5)
        try:
            connecting.operation.result()
        except HawserError as e:
            connecting.endpoint.abort()
            raise unresolved(e) or translate(e, "ucp_ep_create") from e
        return cls(worker, connecting.endpoint, endpoint_error_handling)

    @classmethod
    def create_from_conn_request(
        cls, worker: UCXWorker, conn_request: int, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        """Take a connection that a listener's callback told of."""
        assert worker.initialized
        return cls(worker, worker._peers.pop(conn_request), endpoint_error_handling)

    @classmethod
    def create_from_worker_address(
        cls, worker: UCXWorker, address: UCXAddress, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        """Connect to a worker; nothing is exchanged with it first."""
        assert worker.initialized
        flags = c.EndpointFlag.LAZY | (c.EndpointFlag.RAW if worker.of_ucxpy else 0)
        id, operation = _posted(
            lambda: _core.connect_address(worker._worker, bytes(address), flags, _PLAIN_CLOSE_NS, 0),
            "ucp_ep_create",
        )
        endpoint = _Endpoint(worker._worker, id)
        endpoint.warns = False
        _progress_all(operation.done, _HANDSHAKE_SECONDS)
        try:
            operation.result()
        except HawserError as e:
            endpoint.abort()
            # Making an endpoint fails with UCXError; the finer classes are those of operations.
            raise UCXError(str(translate(e, "ucp_ep_create"))) from e
        self = cls(worker, endpoint, endpoint_error_handling)
        self._by_address = True
        return self

    def unpack_rkey(self, rkey: PackedRemoteKey) -> UCXRkey:
        """Make a packed key usable on this endpoint."""
        return UCXRkey(self, rkey)

    @property
    def handle(self) -> int:
        return self._endpoint.id

    def info(self) -> str:
        """UCX's description."""
        self._assert_initialized()
        return self._endpoint.describe()

    def is_alive(self) -> bool:
        """Whether the peer is there; without error handling always."""
        return not self._handling or self._endpoint._error is None

    def raise_on_error(self) -> None:
        """Raise what became of the connection, if it failed."""
        if self.is_alive():
            return
        code, text = self._endpoint._error  # type: ignore[misc]
        if code == ErrorCode.KEEPALIVE or (self._by_address and code in LOST):
            raise UCXPeerLost(f"Endpoint {self.handle:#x} error")
        if code in (ErrorCode.PEER_CLOSED, ErrorCode.CONNECTION_RESET, ErrorCode.CANCELED):
            raise UCXConnectionReset(f"Endpoint {self.handle:#x} error: Connection reset by remote peer")
        raise UCXError(f"Endpoint {self.handle:#x} error: {text}")

    def flush(
        self,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> UCXRequest:
        """Complete everything posted before."""
        return _flush(self._endpoint.flush, cb_func, cb_args, cb_kwargs)

    def set_close_callback(self, cb_func: Callable[[], None]) -> None:
        """Call `cb_func()` once, when the peer is gone or this is closed: at once if that is so already."""
        self._close_callback = cb_func
        if not self.is_alive():
            self._call_close_callback()

    def am_probe(self) -> bool:
        """Whether an active message has arrived."""
        self.worker._worker.progress()
        return bool(self._am_slots)

    def _call_close_callback(self) -> None:
        callback, self._close_callback = self._close_callback, None
        if callback is not None:
            with log_errors():
                callback()

    # ---- Active messages: slots in order of arrival, [ready, data, exception] ----

    def _am_take(self, header: bytes, data: Any) -> None:
        slot: list[Any] = [False, None, None]
        self._am_slots.append(slot)
        kind = AllocatorType.HOST
        if data.pending and header[:1] == b"\1":
            kind = AllocatorType.CUDA
        try:
            allocator = self.worker._allocators.get(kind)
            if allocator is None:
                raise UCXError(f"No allocator for {kind.name} memory is registered")
            slot[1] = allocator(len(data))
            if data.pending:
                data.fetch(slot[1])._on_end(lambda operation: self._am_fetched(slot, operation))
                return
            if len(data):
                into = memoryview(slot[1]).cast("B")  # it may be longer, of a pool that rounds up
                if into.nbytes < len(data):
                    raise UCXError("Message truncated")
                into[: len(data)] = memoryview(data)
        except Exception as e:
            slot[2] = translate(e, "am_recv") if isinstance(e, HawserError) else e
            _core.close(data.id)  # the exception's traceback may keep it for long, and the sender waits for its end
        slot[0] = True
        self._am_deliver()

    def _am_fetched(self, slot: list[Any], operation: Any) -> None:
        try:
            operation.result()
        except HawserError as e:
            slot[2] = translate_receive(e, "am_recv")
        slot[0] = True
        self._am_deliver()

    def _am_deliver(self) -> None:
        while self._am_waiting and self._am_slots and self._am_slots[0][0]:
            slot = self._am_slots.popleft()
            func, args, kwargs = self._am_waiting.popleft()
            with log_errors():
                if func(slot[1], slot[2], *args, **kwargs) is _UNTAKEN:
                    self._am_slots.appendleft(slot)

    def _am_untaken(self, data: Any) -> None:
        """Who waited for it was interrupted before it went on: it is the next one's."""
        self._am_slots.appendleft([True, data, None])
        self._am_deliver()

    def _am_recv(self, func: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._am_waiting.append((func, args, kwargs))
        self._am_deliver()
        if self._am_waiting and not self.is_alive():
            self.worker._cancel_later(self._cancel_am)

    def _cancel_am(self) -> int:
        waiting, self._am_waiting = self._am_waiting, collections.deque()
        for func, args, kwargs in waiting:
            with log_errors():
                func(
                    None,
                    UCXCanceled("While waiting for am_recv the endpoint was closed"),
                    *args,
                    **kwargs,
                )
        return len(waiting)

    # ---- Closing ----

    def _schedule_cancel(self) -> None:
        waiting = [self._cancel_am] if self._am_waiting else []
        self.worker._cancel_later(*(call.cancel_request for call in self._inflight), *waiting)

    def close(self) -> None:
        """Complete what was sent and close, making progress meanwhile, at most a few seconds.

        What is still being sent ends with UCXCanceled.
        """
        if self._closed:
            return
        self.close_soon()
        _progress_all(lambda: self._endpoint._state == "closed", _CLOSE_SECONDS)

    def close_soon(self, patience: float = 0.0) -> None:
        """As close(), but the progress is left to others; what is being sent goes on for `patience` seconds."""
        self._send_on = patience
        super().close()

    def _give_up(self) -> None:
        """Nobody waits for what is being sent: a peer that does not receive would hold up the end of everything."""
        self.worker._patient.discard(self)
        for id in self._sends():
            with contextlib.suppress(HawserError):
                _core.cancel(id)

    def _give_up_later(self) -> None:
        if self._sends():
            self.worker._patient.add(self)
            asyncio.get_running_loop().call_later(self._send_on, _give_up, weakref.ref(self))

    def _finalize(self) -> None:
        self._schedule_cancel()
        self.worker.cancel_inflight_messages()
        if self._send_on:
            self._give_up_later()
        else:
            self._give_up()  # before the close, which flushes what is left
        self.worker._leaves(self._endpoint)
        self._endpoint.close()
        self._call_close_callback()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            with contextlib.suppress(Exception):
                self.close_soon()


def _give_up(endpoint: weakref.ref[UCXEndpoint]) -> None:
    self = endpoint()
    if self is not None:
        self._give_up()


def _disconnected(endpoint: _Endpoint) -> None:
    """The peer left or failed. Where error handling is off nobody is told."""
    self = endpoint.owner()
    if self is not None and endpoint._error is not None:
        logger.debug("Endpoint %s: the connection ended: %s", hex(endpoint.id), endpoint._error[1])
    if self is not None and self._handling:
        self._schedule_cancel()
        self._call_close_callback()


# Held while an endpoint gets its owner: another thread may make progress, and have messages of it, before.
_arriving = threading.Lock()


def _am_arrived(endpoint: Any, header: bytes, data: Any) -> None:
    if endpoint is None:
        return
    with _arriving:
        owner = getattr(endpoint, "owner", None)
        if owner is None:
            endpoint.__dict__.setdefault("_early", []).append((header, data))
            return
    self = owner()
    if self is not None:
        self._am_take(header, data)


class _Peers:
    """What a listener's events come to."""

    def __init__(self, listener: UCXListener) -> None:
        self._listener = weakref.ref(listener)

    def _peer(self, _kind: int, id: int) -> None:
        listener = self._listener()
        if listener is None:
            _core.close(id)
            return
        worker = listener._worker
        worker._peers[id] = _Endpoint(worker._worker, id)
        with log_errors():
            listener._func(id, *listener._args, **listener._kwargs)

    def _event(self, *event: Any) -> None:
        """Closed: nothing is left to do."""


class UCXListener(UCXObject):
    """Calls `cb_func(conn_request, *cb_args, **cb_kwargs)` for each peer; see create_from_conn_request()."""

    def __init__(
        self,
        worker: UCXWorker,
        port: int,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self._closed = True
        self._worker = worker
        self._func = cb_func
        self._args = cb_args or ()
        self._kwargs = cb_kwargs or {}
        self._peers = _Peers(self)
        check_port(port)
        flags = c.ListenerFlag.RAW if worker.of_ucxpy else 0
        self.handle: int = _posted(
            lambda: _core.listen(worker._worker, None, port or 0, flags, 0, 0), "ucp_listener_create"
        )
        worker._worker._objects[self.handle] = self._peers
        super().__init__()
        worker.add_child(self)
        info = _core.listener_query(self.handle)
        self.port: int = info["port"]
        self.ip: str = info["address"]

    def _finalize(self) -> None:
        with contextlib.suppress(HawserError):
            _core.close(self.handle)


# ---- Tagged messages, streams, active messages ----


def _check(context: UCXContext, feature: Feature, buffer: Array) -> None:
    context._need(feature)
    if buffer.cuda and not context.cuda_support:
        raise ValueError(
            "UCX is not configured with CUDA support, please add `cuda_copy` and/or `cuda_ipc` to the UCX_TLS "
            "environment variable if you wish to use CUDA memory"
        )


def tag_send_nb(
    ep: UCXEndpoint,
    buffer: Any,
    nbytes: int,
    tag: int,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Send a tagged message of `nbytes` bytes."""
    ep.raise_on_error()
    array = asarray(buffer)
    _check(ep.worker._context, Feature.TAG, array)
    name = name or "tag_send_nb"
    operation = _posted(ep._endpoint.send, name, _view(array, nbytes, False), _tag(tag))
    if operation.done():
        return None
    return _Call(operation, cb_func, cb_args, cb_kwargs, name, owner=ep).start()


def tag_recv_nb(
    worker: UCXWorker,
    buffer: Any,
    nbytes: int,
    tag: int,
    cb_func: Callable[..., None],
    tag_mask: int = -1,
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
    ep: UCXEndpoint | None = None,
) -> UCXRequest | None:
    """Receive a tagged message of any peer; `ep` says only with whom the request is cancelled."""
    array = asarray(buffer)
    _check(worker._context, Feature.TAG, array)
    name = name or "tag_recv_nb"
    name = name if "tag" in name else f"{name} tag_recv_nb"
    view = _view(array, nbytes, True)
    operation = _posted(worker._worker.recv, name, view, _tag(tag), tag_mask & c.FOREVER)
    call = _Call(operation, cb_func, cb_args, cb_kwargs, name, nbytes, ep)
    if operation.done():
        call.call()
        return None
    return call.start()


def stream_send_nb(
    ep: UCXEndpoint,
    buffer: Any,
    nbytes: int,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Send bytes on the stream."""
    array = asarray(buffer)
    _check(ep.worker._context, Feature.STREAM, array)
    name = name or "stream_send_nb"
    operation = _posted(ep._endpoint.stream_send, name, _view(array, nbytes, False))
    if operation.done():
        return None
    return _Call(operation, cb_func, cb_args, cb_kwargs, name, owner=ep).start()


def stream_recv_nb(
    ep: UCXEndpoint,
    buffer: Any,
    nbytes: int,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Receive exactly `nbytes` bytes of the stream."""
    array = asarray(buffer)
    _check(ep.worker._context, Feature.STREAM, array)
    name = name or "stream_recv_nb"
    operation = _posted(ep._endpoint.stream_recv, name, _view(array, nbytes, True), True)
    call = _Call(operation, cb_func, cb_args, cb_kwargs, name, nbytes, ep)
    if operation.done():
        call.call()
        return None
    return call.start()


def am_send_nbx(
    ep: UCXEndpoint,
    buffer: Any,
    nbytes: int,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Send an active message; the peer learns the kind of memory."""
    array = asarray(buffer)
    _check(ep.worker._context, Feature.AM, array)
    name = name or "am_send_nbx"
    header = b"\1\0\0\0" if array.cuda else b"\0\0\0\0"
    operation = _posted(ep._endpoint.send_am, name, _view(array, nbytes, False), _AM_ID, header)
    if operation.done():
        return None
    return _Call(operation, cb_func, cb_args, cb_kwargs, name, owner=ep).start()


def am_recv_nb(
    ep: UCXEndpoint,
    cb_func: Callable[..., object],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = "am_recv_nb",
) -> None:
    """Receive the next active message: `cb_func(received, exception, *cb_args, **cb_kwargs)`."""
    ep.worker._context._need(Feature.AM)
    ep._am_recv(cb_func, cb_args or (), cb_kwargs or {})


# ---- Addresses, memory of others ----


class UCXAddress(bytes):
    """The address of a worker: bytes that others connect by."""

    @classmethod
    def from_buffer(cls, buffer: Any) -> UCXAddress:
        """An address that came as bytes."""
        return cls(bytes(memoryview(buffer).cast("B")))

    @classmethod
    def from_worker(cls, worker: UCXWorker) -> UCXAddress:
        """The address of a worker."""
        flags = c.Address.PLAIN if worker.of_ucxpy else 0
        return cls(_posted(_core.worker_address, "ucp_worker_get_address", worker._worker.id, flags))

    @property
    def address(self) -> int:
        """Where the bytes are."""
        return _core.pointer(self)

    @property
    def length(self) -> int:
        return len(self)


class PackedRemoteKey(bytes):
    """A packed key of registered memory: bytes to be sent to those who shall reach it."""

    @classmethod
    def from_buffer(cls, buffer: Any) -> PackedRemoteKey:
        """A key that came as bytes."""
        return cls(bytes(memoryview(buffer).cast("B")))

    @classmethod
    def from_mem_handle(cls, mem: UCXMemoryHandle) -> PackedRemoteKey:
        """The key of registered memory."""
        return cls(_posted(_core.rkey_pack, "ucp_rkey_pack", mem.mem_handle, 0))

    @property
    def key(self) -> int:
        """Where the bytes are."""
        return _core.pointer(self)

    @property
    def length(self) -> int:
        return len(self)


class UCXMemoryHandle(UCXObject):
    """Registered memory."""

    def __init__(self, context: UCXContext, id: int, owner: Any = None) -> None:
        super().__init__()
        self._context = context
        self._owner = owner
        self.mem_handle = id
        self.address: int
        self.length: int
        self.address, self.length, _ = _core.mem_query(id)
        context.add_child(self)

    @classmethod
    def alloc(cls, ctx: UCXContext, size: int) -> UCXMemoryHandle:
        """Allocate and register at least `size` bytes."""
        _check_fits(size, c.FOREVER, "size_t")
        return cls(ctx, _posted(_core.mem_alloc, "ucp_mem_map", ctx._context.id, max(size, 1)))

    @classmethod
    def map(cls, ctx: UCXContext, mem: Any) -> UCXMemoryHandle:
        """Register a buffer; it is kept alive until the handle is closed."""
        array = asarray(mem)
        if array.nbytes == 0:
            return cls.alloc(ctx, 0)
        kind = c.Memory.CUDA if array.cuda else c.Memory.HOST
        id = _posted(_core.mem_register, "ucp_mem_map", ctx._context.id, array.ptr, array.nbytes, kind)
        return cls(ctx, id, array)

    def pack_rkey(self) -> PackedRemoteKey:
        """The key by which others reach it."""
        return PackedRemoteKey.from_mem_handle(self)

    def _finalize(self) -> None:
        with contextlib.suppress(HawserError):
            _core.close(self.mem_handle)


class UCXRkey(UCXObject):
    """A key that is usable on one endpoint."""

    def __init__(self, ep: UCXEndpoint, rkey: PackedRemoteKey) -> None:
        self._closed = True
        self.ep = ep
        self.id: int = _posted(_core.rkey_unpack, "ucp_ep_rkey_unpack", ep.handle, bytes(rkey), 0)
        super().__init__()
        ep.add_child(self)

    def _finalize(self) -> None:
        with contextlib.suppress(HawserError):
            _core.close(self.id)


_Transfer = Callable[[_core.Worker, int, int, Any], _core.Operation[Any]]


def _put(worker: _core.Worker, rkey: int, address: int, view: Any) -> _core.Operation[Any]:
    return _core.put(worker, rkey, address, view, None, None)


def _get(worker: _core.Worker, rkey: int, address: int, view: Any) -> _core.Operation[Any]:
    return _core.get(worker, rkey, address, view, None)


def _move(transfer: _Transfer, name: str, buffer: Any, nbytes: int, remote_addr: int, rkey: UCXRkey) -> Any:
    view = _view(asarray(buffer), nbytes, transfer is _get)
    return _posted(transfer, name, rkey.ep.worker._worker, rkey.id, remote_addr, view)


def put_nbi(buffer: Any, nbytes: int, remote_addr: int, rkey: UCXRkey, name: str | None = None) -> bool:
    """Write to a peer's memory; False: the buffer is in use until a flush."""
    return bool(_move(_put, name or "put_nbi", buffer, nbytes, remote_addr, rkey).done())


def get_nbi(buffer: Any, nbytes: int, remote_addr: int, rkey: UCXRkey, name: str | None = None) -> bool:
    """Read from a peer's memory; False: the data is there after a flush."""
    return bool(_move(_get, name or "get_nbi", buffer, nbytes, remote_addr, rkey).done())


def _move_nb(
    transfer: _Transfer,
    name: str,
    buffer: Any,
    nbytes: int,
    remote_addr: int,
    rkey: UCXRkey,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None,
    cb_kwargs: dict[str, Any] | None,
) -> UCXRequest | None:
    operation = _move(transfer, name, buffer, nbytes, remote_addr, rkey)
    if operation.done():
        return None
    return _Call(operation, cb_func, cb_args, cb_kwargs, name).start()


def put_nb(
    buffer: Any,
    nbytes: int,
    remote_addr: int,
    rkey: UCXRkey,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Write to a peer's memory."""
    return _move_nb(_put, name or "put_nb", buffer, nbytes, remote_addr, rkey, cb_func, cb_args, cb_kwargs)


def get_nb(
    buffer: Any,
    nbytes: int,
    remote_addr: int,
    rkey: UCXRkey,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Read from a peer's memory."""
    return _move_nb(_get, name or "get_nb", buffer, nbytes, remote_addr, rkey, cb_func, cb_args, cb_kwargs)


class RemoteMemory:
    """A range of a peer's memory. A size of 0 is the whole buffer."""

    def __init__(self, rkey: UCXRkey, base: int, length: int) -> None:
        self._rkey = rkey
        self._base = base
        self._length = length

    def _range(self, memory: Any, offset: int, size: int) -> tuple[Array, int, int]:
        array = asarray(memory)
        size = size or array.nbytes
        if offset < 0 or size > array.nbytes or size + offset > self._length:
            raise IndexError("Out of bounds in UCX RMA interface")
        return array, size, self._base + offset

    def put_nb(
        self,
        memory: Any,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
        offset: int = 0,
        size: int = 0,
    ) -> UCXRequest | None:
        """Write to it."""
        return put_nb(*self._range(memory, offset, size), self._rkey, cb_func, cb_args, cb_kwargs)

    def get_nb(
        self,
        memory: Any,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
        offset: int = 0,
        size: int = 0,
    ) -> UCXRequest | None:
        """Read from it."""
        return get_nb(*self._range(memory, offset, size), self._rkey, cb_func, cb_args, cb_kwargs)

    def put_nbi(self, memory: Any, size: int = 0, offset: int = 0) -> bool:
        """Write to it; False: the buffer is in use until a flush."""
        return put_nbi(*self._range(memory, offset, size), self._rkey)

    def get_nbi(self, memory: Any, size: int = 0, offset: int = 0) -> bool:
        """Read from it; False: the data is there after a flush."""
        return get_nbi(*self._range(memory, offset, size), self._rkey)


class UCXIO(io.RawIOBase):
    """A peer's memory as a file of fixed length; every call blocks. ValueError once it is closed, as of any file."""

    def __init__(self, dest: int, length: int, rkey: UCXRkey) -> None:
        self._dest = dest
        self._length = length
        self._rkey = rkey
        self._at = 0

    def _flush_ucx(self) -> None:
        ended: list[Any] = []
        self._rkey.ep.flush(lambda request, exception: ended.append(exception))
        _progress_all(lambda: bool(ended), _HANDSHAKE_SECONDS)
        if not ended:
            raise UCXError("The flush takes too long")
        if ended[0] is not None:
            raise ended[0]

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, pos: int, whence: int = io.SEEK_SET) -> int:
        """Move, but not out of [0, length]."""
        self._checkClosed()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}
        if whence not in base:
            raise ValueError("Invalid argument")
        self._at = min(max(base[whence] + pos, 0), self._length)
        return self._at

    def tell(self) -> int:
        self._checkClosed()
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the memory goes; how many bytes that were."""
        self._checkClosed()
        array = asarray(buffer)
        size = min(array.nbytes, self._length - self._at)
        if size:
            get_nbi(array, size, self._dest + self._at, self._rkey)
            self._flush_ucx()
        self._at += size
        return size

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; all that is left if negative."""
        left = self._length - self._at
        data = bytearray(left if size is None or size < 0 else min(size, left))
        self.readinto(data)
        return bytes(data)

    def write(self, buffer: Any) -> int:
        """Write as far as the memory goes; how many bytes that were."""
        self._checkClosed()
        array = asarray(buffer)
        size = min(array.nbytes, self._length - self._at)
        if size:
            put_nbi(array, size, self._dest + self._at, self._rkey)
            self._flush_ucx()
        self._at += size
        return size

    def flush(self) -> None:
        """Complete everything written."""
        if self._rkey.initialized and self._rkey.ep.initialized:
            self._flush_ucx()
