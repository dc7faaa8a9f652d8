"""Endpoints: connections to peers."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import socket
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hawser import _constants as c
from hawser import _core
from hawser._check import function, octets, one
from hawser._connect import connect as _connect
from hawser._endpoint import Endpoint as _Endpoint

from ._context import AllocatorType
from ._memory import PackedRemoteKey, UCXAddress
from ._object import UCXObject
from ._progress import HANDSHAKE_SECONDS, progress_all
from ._remote import UCXRkey
from ._request import Call, Callback, UCXRequest, callback, fitting, flush, posted
from .exceptions import (
    LOST,
    ErrorCode,
    HawserError,
    UCXCanceled,
    UCXConnectionReset,
    UCXError,
    UCXPeerLost,
    log_errors,
    translate,
    translate_receive,
)

if TYPE_CHECKING:
    from ._worker import UCXWorker

logger = logging.getLogger("ucx")
# Active messages of this module; the others are free for programs that use hawser besides.
AM_ID = 0
UNTAKEN = object()  # what a callback of am_recv_nb() returns to leave the message to the next one
_CLOSE_SECONDS = 5.0
# A peer by address says no goodbye, and often makes no progress any more.
_PLAIN_CLOSE_NS = 1_000_000_000


def check_port(port: int | None) -> int:
    """A port, as a C number of 16 bits takes it; None: 0."""
    return 0 if port is None else fitting("port", port, 0xFFFF, "uint16_t")


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
        self._inflight: set[Call] = set()
        self._am_slots: collections.deque[list[Any]] = collections.deque()
        self._am_waiting: collections.deque[Callback] = collections.deque()
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
        one("worker", worker, UCXObject)._assert_initialized()
        check_port(port)
        handles = bool(endpoint_error_handling)
        connecting = _connect(ip_address, port, worker=worker._worker, timeout=HANDSHAKE_SECONDS)
        try:
            progress_all(connecting.operation.done, HANDSHAKE_SECONDS + 5)
            connecting.operation.result()
        except HawserError as e:
            connecting.endpoint.abort()
            raise unresolved(e) or translate(e, "ucp_ep_create") from e
        except BaseException:  # Ctrl-C
            connecting.endpoint.abort()
            raise
        return cls(worker, connecting.endpoint, handles)

    @classmethod
    def create_from_conn_request(
        cls, worker: UCXWorker, conn_request: int, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        """Take a connection that a listener's callback told of."""
        one("worker", worker, UCXObject)._assert_initialized()
        handles = bool(endpoint_error_handling)
        return cls(worker, worker._take_peer(conn_request), handles)

    @classmethod
    def create_from_worker_address(
        cls, worker: UCXWorker, address: UCXAddress, endpoint_error_handling: bool
    ) -> UCXEndpoint:
        """Connect to a worker; nothing is exchanged with it first."""
        one("worker", worker, UCXObject)._assert_initialized()
        where = octets("address", address)
        handles = bool(endpoint_error_handling)
        flags = c.EndpointFlag.LAZY | (c.EndpointFlag.RAW if worker.of_ucxpy else 0)
        id, operation = posted(
            lambda: _core.connect_address(worker._worker, where, flags, _PLAIN_CLOSE_NS, 0),
            "ucp_ep_create",
        )
        endpoint = _Endpoint(worker._worker, id)
        endpoint.warns = False
        progress_all(operation.done, HANDSHAKE_SECONDS)
        try:
            operation.result()
        except HawserError as e:
            endpoint.abort()
            # Making an endpoint fails with UCXError; the finer classes are those of operations.
            raise UCXError(str(translate(e, "ucp_ep_create"))) from e
        self = cls(worker, endpoint, handles)
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
        return flush(self._endpoint.flush, callback(cb_func, cb_args, cb_kwargs))

    def set_close_callback(self, cb_func: Callable[[], None] | None) -> None:
        """Call `cb_func()` once, when the peer is gone or this is closed: at once if that is so already. None: call
        nothing."""
        self._close_callback = None if cb_func is None else function("cb_func", cb_func)
        if not self.is_alive():
            self._call_close_callback()

    def am_probe(self) -> bool:
        """Whether an active message has arrived."""
        if self.worker.initialized:
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
            receiver = self._am_waiting.popleft()
            with log_errors():
                if receiver(slot[1], slot[2]) is UNTAKEN:
                    self._am_slots.appendleft(slot)

    def _am_untaken(self, data: Any) -> None:
        """Who waited for it was interrupted before it went on: it is the next one's."""
        self._am_slots.appendleft([True, data, None])
        self._am_deliver()

    def _am_recv(self, receiver: Callback) -> None:
        if not self._am_slots:
            self._assert_initialized()  # nothing comes any more
        self._am_waiting.append(receiver)
        self._am_deliver()
        if self._am_waiting and not self.is_alive():
            self.worker._cancel_later(self._cancel_am)

    def _cancel_am(self) -> int:
        waiting, self._am_waiting = self._am_waiting, collections.deque()
        for receiver in waiting:
            with log_errors():
                receiver(None, UCXCanceled("While waiting for am_recv the endpoint was closed"))
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
        progress_all(lambda: self._endpoint._state == "closed", _CLOSE_SECONDS)

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
        self.worker._cancel_scheduled()
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


def am_arrived(endpoint: Any, header: bytes, data: Any) -> None:
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
