"""Workers: progress domains, on which listeners and endpoints live."""

from __future__ import annotations

import contextlib
import logging
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from . import _check, _core, _errors
from . import _constants as c
from ._address import flags_of
from ._context import Context, nanoseconds
from ._probe import Message, Probed, probe
from ._remote import check_views
from ._waiters import KEPT, Keep, Waiters

log = logging.getLogger("hawser")

_MODES = {
    "manual": c.Progress.MANUAL,
    "blocking": c.Progress.BLOCKING,
    "thread": c.Progress.THREAD,
    "thread-polling": c.Progress.THREAD_POLLING,
}


def _mode_of(progress: str) -> c.Progress:
    if not isinstance(progress, str) or progress not in _MODES:
        raise ValueError(f"progress is one of {', '.join(_MODES)}, not {progress!r}")
    return _MODES[progress]


class Worker(_core.Worker):
    """A progress domain. Whoever waits on it makes its progress.

    progress: what happens while nobody waits. "blocking" (default): the event loop watches a
    descriptor; "thread": a thread of the library, which sleeps when idle; "thread-polling": one
    that never sleeps; "manual": nothing.
    standby: a thread of the library makes the progress while the loop, or whoever waits, has not got to it for half a
    second, as when a callback computes for long: peers that connect or close are answered, and what was posted goes on.
    spin: how long, in seconds, an await makes progress itself before the loop goes on.
    am_ids: active messages with these ids are kept for Endpoint.recv_am() from the beginning, with
    others from the first recv_am() or am_handler() on; before that they are dropped.
    backlog: peers that came by an address and wait for accept(); more are turned away.
    """

    _by_address: Callable[[Any, int], None] | None = None  # takes peers that came by our address
    _mapped: Any = None

    def __init__(
        self,
        context: Context,
        *,
        progress: str = "blocking",
        standby: bool = False,
        name: str | None = None,
        spin: float = 50e-6,
        spares: int = 0,
        am_ids: Iterable[int] = (0,),
        backlog: int = 1024,
    ) -> None:
        self._state = "new"
        am_ids = tuple(_check.each("am_ids", am_ids))
        self.context = _check.one("context", context, Context)
        self._objects: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._handlers: dict[int, Callable[..., object]] = {}
        self._closing: _core.Operation[None] | None = None
        self._peers = Waiters(self)
        self._accepting: set[Any] = set()  # endpoints that nobody else holds yet
        self._leaving: set[Any] = set()  # what is being closed and perhaps nobody else holds any more
        self.backlog = _check.count("backlog", backlog)
        flags = c.WorkerFlag.STANDBY if standby else 0
        self._open(context.id, _mode_of(progress), flags, name, 0, nanoseconds("spin", spin), spares)
        self._state = "open"
        try:
            for id in am_ids if context.has("am") else ():
                self.keep_am(id)
        except BaseException:
            self.close_wait()  # nobody else can: there is no object
            raise

    @property
    def closed(self) -> bool:
        return self._state == "closed" or self.context.closed

    def _unused(self) -> bool:
        """Whether everything that was made on it is closed, and nobody looks at memory that ends with it."""
        if self._accepting or self._leaving or self._views:
            return False
        return all(x.closed for x in list(self._objects.values()))

    # ---- Events ----

    def _notice(self, kind: int, source: int, *event: Any) -> bool:
        """An event of the worker or of something on it; called where progress is made. True: not taken yet."""
        if kind == c.EventKind.AM:
            return self._am_arrived(source, *event)
        if source == self.id:
            if kind == c.EventKind.CLOSED:
                self._end()
        elif kind in (c.EventKind.ACCEPTED, c.EventKind.REQUEST):
            listener = self._objects.get(event[0])
            if listener is not None:
                listener._peer(kind, source)
            elif event[0] == 0 and self._by_address is not None:
                self._by_address(self, source)
            else:
                _core.close(source)
        elif kind == c.EventKind.NOTIFY:
            endpoint = self._objects.get(source)
            if endpoint is not None:
                endpoint._notified(event[4], event[3])
        else:
            thing = self._objects.get(source)
            if thing is not None:
                thing._event(kind, event[1], event[6])
        return False

    def _end(self) -> None:
        self._state = "closed"
        self._leaving.clear()
        self._peers.fail(_errors.ErrorCode.CLOSING, "the worker is closed")
        self._closed()
        if self._closing is not None:
            self._closing._end()

    def buffer(self, length: int) -> _core.Buffer:
        """Writable memory of the library, `length` bytes, to receive into: memoryview() and numpy.asarray() take it.

        The pool of what arrives gives it, and takes it back for the next when nobody holds it any more.
        """
        return _core.buffer(self, length)

    # ---- Active messages ----

    def am_handler(
        self,
        id: int,
        handler: Callable[[Any, bytes, Any], object] | None,
        *,
        defer: bool = False,
    ) -> None:
        """Call `handler(endpoint, header, data)` for each active message with this id, or stop that.

        `data` is a Buffer: memory of the library that lives as long as the object. With `defer`
        the data of large messages is still at the sender (`data.pending`): `data.fetch(buffer)`
        gets it. The handler is called where progress is made and must not block. A message for which
        there is no memory, or whose sender is lost meanwhile, is an exception of the event loop's.
        """
        if handler is not None:
            _check.function("handler", handler)
        # First: an id that cannot be is refused there.
        _core.am_handler(self, id, c.AmFlag.DEFER if defer else 0, handler is not None)
        if handler is None:
            self._handlers.pop(id, None)
        else:
            self._handlers[id] = handler

    def _am_arrived(
        self,
        source: int,
        _op: int,
        status: int,
        _flags: int,
        _length: int,
        id: int,
        _user: int,
        text: str,
        header: bytes,
        data: Any,
        endpoint: int,
    ) -> bool:
        handler = self._handlers.get(id)
        if status < 0:
            if not isinstance(handler, Keep):
                raise _errors.from_code(status, text)
            handler.lost(self._objects.get(source), status, text)
            return False
        return handler is not None and handler(self._objects.get(endpoint), header, data) is KEPT

    def keep_am(self, id: int) -> None:
        """Keep active messages with this id for Endpoint.recv_am()."""
        self.am_handler(id, Keep(id))

    def am_header_max(self) -> int:
        """The largest header of an active message, in bytes."""
        return _core.am_header_max(self.id)

    # ---- Tagged messages of any endpoint ----

    def recv(
        self, buffer: Any, tag: int = 0, mask: int = c.FOREVER, timeout: float | None = None
    ) -> _core.Operation[int]:
        """Receive a tagged message from any endpoint into a writable buffer; gives its length in bytes."""
        return _core.tag_recv(self, buffer, tag, mask, timeout)

    def probe(self, tag: int = 0, mask: int = c.FOREVER) -> Probed | None:
        """The first message that has arrived and matches, or None. It stays where it is."""
        found: Probed | None = probe(self, self.id, tag, mask, False)
        return found

    def take(self, tag: int = 0, mask: int = c.FOREVER) -> Message | None:
        """As probe(), but the message is taken: nobody else can receive it."""
        found: Message | None = probe(self, self.id, tag, mask, True)
        return found

    # ---- Addresses ----

    def address(
        self,
        items: Mapping[int, bytes] | None = None,
        *,
        hello: bool = True,
        plain: bool = False,
        unsafe_shared_memory: bool = False,
    ) -> bytes:
        """The bytes by which others connect, see hawser.connect_address().

        items: what travels with it, packed keys of memory above all, by numbers of your choice.
        hello: both ends learn of each other; accept() gives the peers. Without it (and for UCX's
        bytes alone: plain, hello=False) this side hears of nobody.
        """
        flags = flags_of(hello, plain, unsafe_shared_memory)
        if items is None:
            return _core.worker_address(self.id, flags)
        pairs = tuple((key, _check.octets("items", value)) for key, value in _check.mapping("items", items))
        return _core.blob_pack(self.id, flags, pairs)

    def accept(self) -> _core.Operation[Any]:
        """The Endpoint of the next peer that came by an address with a hello."""
        operation = self._peers.get()
        if self._state != "open":
            self._peers.fail(_errors.ErrorCode.CLOSING, "the worker is closed")
        return operation

    # ---- Others ----

    def fence(self) -> None:
        """Operations on remote memory posted later take effect after those posted before, by endpoint."""
        _core.fence(self.id)

    def flush(self, timeout: float | None = None) -> _core.Operation[None]:
        """Complete everything posted before on all endpoints."""
        return _core.flush(self, self.id, timeout)

    def signal(self) -> None:
        """Wake every thread that sleeps in this worker."""
        _core.signal(self.id)

    def info(self) -> str:
        """UCX's description of the worker, for people."""
        return _core.describe(self.id)

    def stats(self) -> dict[str, int]:
        """The counters of the worker."""
        return {**_core.stats(self.id), **self._awaits}

    def close(self) -> _core.Operation[None]:
        """Close it with everything on it; await the result, or wait() for it.

        Raises BufferError while there are views of a peer's memory.
        """
        if self._closing is None:
            check_views(self)
            self._closing = _core.operation(self)
            if self._state == "open":
                self._state = "closing"
                with contextlib.suppress(_errors.StaleError):
                    _core.close(self.id)
            else:
                self._closing._end()
        return self._closing

    def close_wait(self, timeout: float = 10.0) -> None:
        """Close it and block until that is done, at most `timeout` seconds."""
        if self._state != "closed":
            with contextlib.suppress(TimeoutError):
                self.close().wait(timeout)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close_wait()

    async def __aenter__(self) -> Worker:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if getattr(self, "_state", "") == "open" and not self.context.closed:
            _warn(f"unclosed worker {self.id:#x}", ResourceWarning, source=self, stacklevel=1)

    def __repr__(self) -> str:
        return f"<hawser.Worker {self.id:#x} {'closed' if self.closed else self._state}>"
