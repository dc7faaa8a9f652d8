"""Listeners, and the requests of peers that want to be let in."""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, overload

from . import _check, _core, _errors
from . import _constants as c
from ._context import nanoseconds
from ._defaults import default_worker
from ._endpoint import Endpoint
from ._unique import Unique
from ._waiters import Waiters
from ._worker import Worker, log

if TYPE_CHECKING:
    from typing_extensions import TypeVar, Unpack  # which knows defaults: a bare Listener is one of endpoints

    Peer = TypeVar("Peer", default="Endpoint")
else:
    from typing import TypeVar

    Peer = TypeVar("Peer")


def _is_full(owner: Worker | Listener[Any]) -> bool:
    """Whether a peer that comes now must be turned away."""
    full = len(owner._peers.things) >= owner.backlog
    if full:
        log.warning("%r: a peer is turned away: %d wait for accept()", owner, owner.backlog)
    return full


def _came_by_address(worker: Worker, id: int) -> None:
    if _is_full(worker):
        _core.close(id)
    else:
        worker._peers.put(Endpoint(worker, id))


Worker._by_address = staticmethod(_came_by_address)


class Listener(Unique, Generic[Peer]):
    """Waits for peers: `async for endpoint in listener`, or `await listener.accept()`.

    To type checkers it is a Listener[Endpoint], by listen(explicit=True) a Listener[Request].
    """

    _state = "new"

    def __init__(
        self,
        worker: Worker,
        host: str | None,
        port: int,
        flags: int,
        hello_timeout: float,
        close_timeout: float,
        on_peer: Callable[[Endpoint], None] | None,
        backlog: int,
    ) -> None:
        self.worker = _check.one("worker", worker, Worker)
        self.backlog = _check.count("backlog", backlog)
        self._on_peer = None if on_peer is None else _check.function("on_peer", on_peer)
        # Progress may be made by any task, whose variables are no business of the listener's.
        self._context = contextvars.copy_context()
        self._peers = Waiters(worker)
        self._closing: _core.Operation[None] | None = None
        hello, closing = nanoseconds("hello_timeout", hello_timeout), nanoseconds("close_timeout", close_timeout)
        self.id = _core.listen(worker, host, port, flags, hello, closing)
        self._state = "open"
        worker._objects[self.id] = self
        info = self.info()
        self.port: int = info["port"]
        self.address: str = info["address"]

    def _peer(self, kind: int, id: int) -> None:
        if kind == c.EventKind.REQUEST:
            if _is_full(self):
                _core.reject(id)
            else:
                self._peers.put(Request(self.worker, id))
            return
        endpoint = self.worker._objects.get(id)
        if endpoint is not None:
            endpoint._accepted()
            return
        if self._on_peer is not None:
            self._context.copy().run(self._on_peer, Endpoint(self.worker, id))
        elif _is_full(self):
            _core.close(id)
        else:
            self._peers.put(Endpoint(self.worker, id))

    def accept(self) -> _core.Operation[Peer]:
        """The next peer: its Endpoint, or its Request if the listener is `explicit`."""
        if self.closed:
            raise _errors.from_code(_errors.ErrorCode.CLOSING, "the listener is closed")
        return self._peers.get()

    async def __aiter__(self) -> AsyncIterator[Peer]:
        while self._state == "open":
            try:
                yield await self._peers.get()
            except _errors.ClosingError:
                return

    def info(self) -> dict[str, Any]:
        """Where it listens, and its counters."""
        return _core.listener_query(self.id)

    @property
    def closed(self) -> bool:
        return self._state != "open" or self.worker.closed

    def close(self) -> _core.Operation[None]:
        """Stop listening; endpoints that were accepted stay."""
        if self._closing is None:
            self._closing = _core.operation(self.worker)
            if self._state == "closed":
                self._closing._end()
            else:
                self._state = "closing"
                self.worker._leaving.add(self)
                self._peers.fail(_errors.ErrorCode.CLOSING, "the listener was closed")
                try:
                    _core.close(self.id)
                except _errors.HawserError:
                    self._event(c.EventKind.CLOSED, 0, "")
        return self._closing

    def _event(self, kind: int, status: int, text: str) -> None:
        if kind == c.EventKind.CLOSED:
            self._state = "closed"
            self.worker._leaving.discard(self)
            self._peers.fail(_errors.ErrorCode.CLOSING, "the listener was closed")
            while self._peers.things:
                peer = self._peers.things.popleft()
                if isinstance(peer, Endpoint):
                    peer.close()
            if self._closing is not None:
                self._closing._end()

    def __enter__(self) -> Listener[Peer]:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(TimeoutError):
            self.close().wait(10.0)

    async def __aenter__(self) -> Listener[Peer]:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __del__(self, _warn: Any = warnings.warn, _close: Any = _core.close) -> None:
        if getattr(self, "_state", "") == "open" and not self.worker.closed:
            _warn(f"unclosed listener {self.id:#x}", ResourceWarning, source=self, stacklevel=1)
            with contextlib.suppress(_errors.HawserError):
                _close(self.id)

    def __repr__(self) -> str:
        return f"<hawser.Listener {self.id:#x} {'closed' if self.worker.closed else self._state}>"


class Request(Unique):
    """A peer that wants in: accept() or reject() it."""

    def __init__(self, worker: Worker, id: int) -> None:
        self.worker = worker
        self.id = id

    def info(self) -> dict[str, Any]:
        """Who it is."""
        return _core.endpoint_query(self.id)

    def accept(self) -> _core.Operation[Endpoint]:
        """Let it in; gives its Endpoint."""
        endpoint = Endpoint(self.worker, self.id)
        endpoint._accepting = accepting = _core.operation(self.worker)
        try:
            _core.accept(self.id)
        except _errors.HawserError:
            endpoint._state = "closed"
            raise
        self.worker._accepting.add(endpoint)
        return accepting

    def reject(self) -> None:
        """Turn it away; its connect() raises RejectedError."""
        _core.reject(self.id)

    def __repr__(self) -> str:
        return f"<hawser.Request {self.id:#x}>"


class ListenOptions(TypedDict, total=False):
    """What listen() takes besides."""

    worker: Worker | None
    on_peer: Callable[[Endpoint], None] | None
    raw: bool
    hello_timeout: float
    close_timeout: float
    backlog: int


@overload
def listen(
    port: int = 0, host: str | None = None, *, explicit: Literal[False] = False, **options: Unpack[ListenOptions]
) -> Listener[Endpoint]: ...
@overload
def listen(
    port: int = 0, host: str | None = None, *, explicit: Literal[True], **options: Unpack[ListenOptions]
) -> Listener[Request]: ...
@overload
def listen(
    port: int = 0, host: str | None = None, *, explicit: bool, **options: Unpack[ListenOptions]
) -> Listener[Any]: ...
def listen(
    port: int = 0,
    host: str | None = None,
    *,
    worker: Worker | None = None,
    on_peer: Callable[[Endpoint], None] | None = None,
    explicit: bool = False,
    raw: bool = False,
    hello_timeout: float = 0.0,
    close_timeout: float = 0.0,
    backlog: int = 1024,
) -> Listener[Any]:
    """Listen for peers.

    port: 0 for any free one, see Listener.port. host: address in text; None for every address.
    worker: the worker of the running event loop if None.
    on_peer: called with the Endpoint of each peer, where progress is made, in a copy of this call's
    contextvars; else use accept().
    explicit: peers come as a Request that is accepted or rejected. raw: plain UCX programs may
    connect too. hello_timeout: seconds for a peer to say who it is; 5 if 0.
    backlog: peers that wait for accept(); more are turned away: their connection is closed, which they
    see as PeerClosedError, or with `explicit` rejected. The C library itself hands over any number.
    Raises AddressInUseError, InvalidError (the address), UnreachableError.
    """
    flags = (c.ListenerFlag.EXPLICIT if explicit else 0) | (c.ListenerFlag.RAW if raw else 0)
    worker = default_worker() if worker is None else worker
    listener: Listener[Any] = Listener(worker, host, port, flags, hello_timeout, close_timeout, on_peer, backlog)
    with contextlib.suppress(RuntimeError):
        worker._watch()
    return listener
