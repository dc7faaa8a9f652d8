"""Endpoints: connections to peers."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from . import _check, _core, _errors
from . import _constants as c
from ._objects import from_buffers, memory_for, to_buffers
from ._probe import Message, Probed, probe
from ._remote import Plan, RemoteKey, check_views
from ._waiters import Messages, Waiters, within
from ._worker import Worker


@_core.own
class Endpoint(_core.Endpoint):
    """A connection to a peer. Get one by connect() or from a Listener.

    Every call that moves data gives an Operation at once: await it, or wait() for it. The buffer
    belongs to the library until it has ended, also when the await is cancelled. recv() without a
    buffer and recv_obj() are coroutines instead: they begin when they are awaited.
    """

    owner: Any = None  # what another API made of it
    warns = True  # of being dropped without a close
    _accepting: _core.Operation[Endpoint] | None = None
    _mapped: Any = None

    def __init__(self, worker: Worker, id: int) -> None:
        self._attach(worker, id)
        self._state = "open"
        self._error: tuple[int, str] | None = None
        self._closing: _core.Operation[None] | None = None
        self._ams: dict[int, Messages] = {}
        self._notices = Waiters(worker)
        self.on_disconnect: Callable[[Endpoint], None] | None = None
        worker._objects[id] = self

    # ---- Tagged messages ----

    async def _recv_sized(self, tag: int, mask: int, timeout: float | None) -> bytearray:
        taken = _core.take(self.worker, self.id, tag, mask, timeout)
        message = await taken
        try:
            data = bytearray(taken.length)
        except MemoryError:
            _core.message_return(message)
            raise
        await _core.message_recv(self.worker, message, data, timeout)
        return data

    def probe(self, tag: int = 0, mask: int = c.FOREVER) -> Probed | None:
        """The first message of this peer that has arrived and matches, or None."""
        found: Probed | None = probe(self.worker, self.id, tag, mask, False)
        return found

    def take(self, tag: int = 0, mask: int = c.FOREVER) -> Message | None:
        """As probe(), but the message is taken: nobody else can receive it."""
        found: Message | None = probe(self.worker, self.id, tag, mask, True)
        return found

    # ---- Multi-buffer messages ----

    def send_multi(
        self,
        buffers: Iterable[Any],
        tag: int = 0,
        timeout: float | None = None,
        coalesce: int = 0,
        stream: Any = None,
    ) -> _core.Operation[None]:
        """Send buffers, of any mix of sizes and kinds of memory, as one message.

        coalesce: small ones travel together up to so many bytes; 32768 if 0, at most 1 MiB.
        stream: a CUDA stream, as for send(). Raises TooBigError over what the peer takes.
        """
        return _core.multi_send(self.worker, self.id, buffers, tag, timeout, coalesce, stream)

    def recv_multi(
        self, tag: int = 0, mask: int = c.FOREVER, timeout: float | None = None
    ) -> _core.Operation[_core.Segments]:
        """The list of the next multi-buffer message, as Segments: fetch() them into buffers of your
        choice, or copy() them when all are here."""
        return _core.multi_recv(self.worker, self.id, tag, mask, timeout)

    # ---- Active messages ----

    def recv_am(self, id: int = 0, timeout: float | None = None) -> Coroutine[Any, Any, tuple[bytes, Any]]:
        """The next active message of this peer with this id: (header, data). What the peer may send before somebody
        asks for it is bounded (flow control), over all ids. Those with another id than 0 are dropped before the first
        recv_am(), unless Worker(am_ids=...) or keep_am() named it earlier."""
        if timeout is None:
            return self._next_am(id)
        limit = _check.seconds("timeout", timeout)  # first: what waits with a wrong one would have the next message
        return within(self._next_am(id), limit)

    def _next_am(self, id: int) -> _core.Operation[tuple[bytes, Any]]:
        id = id if type(id) is int else _check.integer("id", id)
        if id not in self.worker._handlers:
            self.worker.keep_am(id)
        waiters = self._am_queue(id)
        if self._error is not None and not waiters.things:
            raise _errors.from_code(*self._error)
        return waiters.get()

    def _am_queue(self, id: int) -> Messages:
        waiters = self._ams.get(id)
        if waiters is None:
            waiters = self._ams[id] = Messages(self.worker)
        return waiters

    # ---- Objects ----

    def send_obj(
        self, obj: Any, tag: int = 0, timeout: float | None = None, stream: Any = None
    ) -> _core.Operation[None]:
        """Send a picklable object; the memory of arrays and the like is not copied, and in use until
        the operation has ended. `stream` is a CUDA stream, as for send()."""
        return _core.multi_send(self.worker, self.id, to_buffers(obj), tag, timeout, 0, stream)

    async def recv_obj(
        self,
        tag: int = 0,
        mask: int = c.FOREVER,
        timeout: float | None = None,
        allocator: Callable[[int], Any] = bytearray,
    ) -> Any:
        """The object of the next send_obj(). Only from peers that are trusted: it is unpickled.

        allocator: makes the memory of its large parts, from a number of bytes.
        """
        _check.function("allocator", allocator)
        segments = await self.recv_multi(tag, mask, timeout)
        parts = memory_for(segments, bytearray, allocator)
        await segments.fetch(parts, timeout)
        return from_buffers(parts)

    # ---- Remote memory ----

    def rkey_unpack(self, packed: bytes, raw: bool = False) -> RemoteKey:
        """Make a key of this peer's memory usable. raw: it is of a plain UCX program.

        Raises InvalidError (damaged, of another process), PeerVersionError.
        """
        return RemoteKey(self, packed, raw)

    def plan(self, transfers: Iterable[tuple[str, RemoteKey, int, Any]]) -> Plan:
        """Prepare transfers: each ("put" or "get", key, offset, buffer). post() does all of them."""
        return Plan(self, transfers)

    def recv_notify(self) -> _core.Operation[tuple[int, int]]:
        """What the peer's next put_notify() said: (value, bytes written)."""
        if self._error is not None and not self._notices.things:
            raise _errors.from_code(*self._error)
        return self._notices.get()

    def _notified(self, value: int, length: int) -> None:
        self._notices.put((value, length))

    def fence(self) -> None:
        """Operations on remote memory posted later take effect after those posted before."""
        _core.fence(self.id)

    # ---- Others ----

    def flush(self, timeout: float | None = None) -> _core.Operation[None]:
        """Complete everything posted before: it has left this process and reached the peer's."""
        return _core.flush(self.worker, self.id, timeout)

    def info(self) -> dict[str, Any]:
        """What it is connected to, how, and what passed through it."""
        return _core.endpoint_query(self.id)

    def describe(self) -> str:
        """UCX's description, for people."""
        return _core.describe(self.id)

    @property
    def closed(self) -> bool:
        """True once it was closed here."""
        return self._state != "open" or self.worker.closed

    @property
    def connected(self) -> bool:
        """False once the peer left or failed, or it was closed here."""
        return not self.closed and self._error is None

    def abort(self) -> None:
        """Close at once: pending operations end with CanceledError, the peer sees a failure.

        Raises BufferError while there are views of the peer's memory.
        """
        if self._state != "closed":
            check_views(self)
            self._state = "closing"
            with contextlib.suppress(_errors.HawserError):
                _core.abort(self.id)

    def close(self) -> _core.Operation[None]:
        """Complete what was sent, say goodbye and close; await the result, or wait() for it.

        Raises BufferError while there are views of the peer's memory.
        """
        if self._closing is None:
            check_views(self)
            self._closing = _core.operation(self.worker)
            if self._state == "closed":
                self._closing._end()
            else:
                self._state = "closing"
                self.worker._leaving.add(self)
                try:
                    _core.close(self.id)
                except _errors.HawserError:
                    self._event(c.EventKind.CLOSED, 0, "")
        return self._closing

    def _event(self, kind: int, status: int, text: str) -> None:
        lost = kind == c.EventKind.DISCONNECTED and self._error is None
        if kind == c.EventKind.CLOSED:
            self._state = "closed"
            self.worker._leaving.discard(self)
            if self._error is None:
                self._error = (_errors.ErrorCode.CANCELED, "the endpoint was closed")
            if self._closing is not None:
                self._closing._end()
        elif lost:
            self._error = (status, text)
        if self._error is not None:
            if self._accepting is not None:
                self._accepted(*self._error)
            for waiters in (*self._ams.values(), self._notices):
                waiters.fail(*self._error)
        if lost and self.on_disconnect is not None:  # last: it may raise
            self.on_disconnect(self)

    def _accepted(self, status: int = 0, text: str = "") -> None:
        """What Request.accept() waits for has come, or will not: then nobody gets to have this endpoint."""
        assert self._accepting is not None
        accepting, self._accepting = self._accepting, None
        self.worker._accepting.discard(self)
        if status < 0:
            self.abort()
            accepting._end(status, None, text)
        else:
            accepting._end(0, self)

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(TimeoutError):
            self.close().wait(10.0)

    def __del__(self, _warn: Any = warnings.warn, _close: Any = _core.close) -> None:
        if getattr(self, "_state", "") == "open" and not self.worker.closed:
            if self.warns:
                _warn(f"unclosed endpoint {self.id:#x}", ResourceWarning, source=self, stacklevel=1)
            with contextlib.suppress(_errors.HawserError):
                _close(self.id)

    def __repr__(self) -> str:
        return f"<hawser.Endpoint {self.id:#x} {'closed' if self.worker.closed else self._state}>"
