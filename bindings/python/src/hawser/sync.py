"""The blocking twin of hawser: the same names and arguments, results instead of awaitables.

    with hawser.sync.connect("10.0.0.1", 13337) as ep:
        ep.send(b"hello")
        answer = ep.recv()

Other threads run while a call blocks, and Ctrl-C ends it. Without a `worker` argument each thread
has a worker of its own, closed when Python ends. Such a worker makes progress inside of calls only: a peer that
connects, or receives what was sent, may have to wait until this thread calls again, also where send() has
returned. A thread that does other things for long gives a worker with `progress="thread"`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, overload

from . import _check, _connect, _core, _defaults, _endpoint, _errors, _listener, _remote
from . import _constants as c
from ._context import Context
from ._defaults import beside
from ._objects import from_buffers, memory_for
from ._probe import Message, Probed
from ._unique import Unique
from ._worker import Worker

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Peer = TypeVar("Peer", default="Endpoint")
else:
    from typing import TypeVar

    Peer = TypeVar("Peer")

_local = threading.local()
_context: Context | None = None
_workers: list[tuple[threading.Thread, Worker]] = []
_lock = threading.Lock()


def default_worker() -> Worker:
    """The worker of this thread: opened at its first use, closed when Python ends, or as another thread opens
    one after this thread has ended and everything on the worker was closed."""
    global _context
    worker: Worker | None = getattr(_local, "worker", None)
    if worker is None or worker.closed:
        with _lock:
            for entry in [x for x in _workers if not x[0].is_alive() and x[1]._unused()]:
                _workers.remove(entry)
                beside(entry[1].close_wait, 5.0)
            if _context is None or _context.closed:
                _context = Context()
            worker = _local.worker = Worker(_context)
            _workers.append((threading.current_thread(), worker))
    return worker


def _close_defaults() -> None:
    global _context
    while _workers:
        with contextlib.suppress(BufferError):
            _workers.pop()[1].close_wait(1.0)
    if _context is not None:
        context, _context = _context, None
        with contextlib.suppress(BufferError):
            context.close(1.0)


def _worker(worker: Worker | None) -> Worker:
    return default_worker() if worker is None else worker


def _next(operation: _core.Operation[Any], timeout: float | None) -> Any:
    """What comes next. After the timeout nothing waits for it any more: else it would come for nobody."""
    try:
        return operation.wait(timeout)
    except (TypeError, ValueError):  # the timeout is no number
        operation.cancel()
        raise
    except TimeoutError:
        if operation.cancel():
            raise _errors.from_code(_errors.ErrorCode.TIMED_OUT, "the deadline passed") from None
        return operation.wait()  # it came just now, or the connection was late itself


def _sync(twin: object) -> str:
    """The text of the asynchronous object, as that of its blocking twin."""
    return repr(twin).replace("hawser.", "hawser.sync.", 1)


@_core.own
class Endpoint(_core.SyncEndpoint):
    """A connection to a peer; see hawser.Endpoint for what the calls mean."""

    def __init__(self, endpoint: _endpoint.Endpoint) -> None:
        self.async_endpoint = _check.one("endpoint", endpoint, _endpoint.Endpoint)
        self._attach(endpoint.worker, endpoint.id)

    def _recv_sized(self, tag: int, mask: int, timeout: float | None) -> bytearray:
        taken = _core.take(self.worker, self.id, tag, mask, timeout)
        message = taken.wait()
        try:
            data = bytearray(taken.length)
        except MemoryError:
            _core.message_return(message)
            raise
        _core.message_recv(self.worker, message, data, timeout).wait()
        return data

    def probe(self, tag: int = 0, mask: int = c.FOREVER) -> Probed | None:
        """The first message that has arrived and matches, or None."""
        self.worker.progress()
        return self.async_endpoint.probe(tag, mask)

    def take(self, tag: int = 0, mask: int = c.FOREVER) -> Message | None:
        """As probe(), but nobody else can receive the message. Receive it by recv(...).wait()."""
        self.worker.progress()
        return self.async_endpoint.take(tag, mask)

    def recv_am(self, id: int = 0, timeout: float | None = None) -> tuple[bytes, Any]:
        """The next active message of this peer with this id: (header, data)."""
        arrived: tuple[bytes, Any] = _next(self.async_endpoint._next_am(id), timeout)
        return arrived

    def send_multi(
        self,
        buffers: Iterable[Any],
        tag: int = 0,
        timeout: float | None = None,
        coalesce: int = 0,
        stream: Any = None,
    ) -> None:
        """Send buffers as one message."""
        self.async_endpoint.send_multi(buffers, tag, timeout, coalesce, stream).wait()

    def recv_multi(self, tag: int = 0, mask: int = c.FOREVER, timeout: float | None = None) -> Any:
        """The list of the next multi-buffer message, as Segments: copy() them, or fetch(...).wait()."""
        return self.async_endpoint.recv_multi(tag, mask, timeout).wait()

    def send_obj(self, obj: Any, tag: int = 0, timeout: float | None = None, stream: Any = None) -> None:
        """Send a picklable object."""
        self.async_endpoint.send_obj(obj, tag, timeout, stream).wait()

    def recv_obj(
        self,
        tag: int = 0,
        mask: int = c.FOREVER,
        timeout: float | None = None,
        allocator: Callable[[int], Any] = bytearray,
    ) -> Any:
        """The object of the next send_obj(). Only from peers that are trusted: it is unpickled."""
        _check.function("allocator", allocator)
        segments = self.recv_multi(tag, mask, timeout)
        parts = memory_for(segments, bytearray, allocator)
        segments.fetch(parts, timeout).wait()
        return from_buffers(parts)

    def rkey_unpack(self, packed: bytes, raw: bool = False) -> RemoteKey:
        """Make a key of this peer's memory usable."""
        return RemoteKey(self.async_endpoint, packed, raw)

    def plan(self, transfers: Iterable[tuple[str, _remote.RemoteKey, int, Any]]) -> Plan:
        """Prepare transfers: each ("put" or "get", key, offset, buffer)."""
        return Plan(self.async_endpoint, transfers)

    def recv_notify(self, timeout: float | None = None) -> tuple[int, int]:
        """What the peer's next put_notify() said: (value, bytes written)."""
        said: tuple[int, int] = _next(self.async_endpoint.recv_notify(), timeout)
        return said

    def fence(self) -> None:
        """Operations on remote memory posted later take effect after those posted before."""
        self.async_endpoint.fence()

    def describe(self) -> str:
        """UCX's description, for people."""
        return self.async_endpoint.describe()

    def flush(self, timeout: float | None = None) -> None:
        """Complete everything posted before."""
        self.async_endpoint.flush(timeout).wait()

    def info(self) -> dict[str, Any]:
        """What it is connected to, how, and what passed through it."""
        return self.async_endpoint.info()

    @property
    def closed(self) -> bool:
        return self.async_endpoint.closed

    @property
    def connected(self) -> bool:
        return self.async_endpoint.connected

    def abort(self) -> None:
        """Close at once."""
        self.async_endpoint.abort()

    def close(self, timeout: float = 10.0) -> None:
        """Complete what was sent, say goodbye and close."""
        self.async_endpoint.close().wait(timeout)

    def __repr__(self) -> str:
        return _sync(self.async_endpoint)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class RemoteKey(_remote.RemoteKey):
    """What reaches a peer's memory; see hawser.RemoteKey for what the calls mean. They give the result itself."""

    def put(  # type: ignore[override]
        self, buffer: Any, offset: int = 0, timeout: float | None = None, stream: Any = None
    ) -> None:
        """Write a buffer to the peer's memory."""
        super().put(buffer, offset, timeout, stream).wait()

    def put_notify(  # type: ignore[override]
        self, buffer: Any, value: int, offset: int = 0, timeout: float | None = None, stream: Any = None
    ) -> None:
        """As put(); when the data is there, the peer's recv_notify() gives `value`."""
        super().put_notify(buffer, value, offset, timeout, stream).wait()

    def get(  # type: ignore[override]
        self, buffer: Any, offset: int = 0, timeout: float | None = None
    ) -> None:
        """Read from the peer's memory into a writable buffer."""
        super().get(buffer, offset, timeout).wait()

    def atomic(  # type: ignore[override]
        self, action: str, value: int, offset: int = 0, **options: Any
    ) -> int:
        """Change an integer of 4 or 8 bytes in the peer's memory; gives what was there before."""
        return super().atomic(action, value, offset, **options).wait()


class Plan(_remote.Plan):
    """Puts and gets that are prepared once and posted often."""

    def post(  # type: ignore[override]
        self, timeout: float | None = None, stream: Any = None
    ) -> int:
        """Do all of it; gives the number of bytes."""
        return super().post(timeout, stream).wait()


class Request(Unique):
    """A peer that wants in: accept() or reject() it."""

    def __init__(self, request: _listener.Request) -> None:
        self.async_request = request

    def info(self) -> dict[str, Any]:
        """Who it is."""
        return self.async_request.info()

    def accept(self) -> Endpoint:
        """Let it in."""
        return Endpoint(self.async_request.accept().wait())

    def reject(self) -> None:
        """Turn it away; its connect() raises RejectedError."""
        self.async_request.reject()

    def __repr__(self) -> str:
        return _sync(self.async_request)


class Listener(Unique, Generic[Peer]):
    """Waits for peers: `for endpoint in listener`, or `listener.accept()`."""

    def __init__(self, listener: _listener.Listener[Any]) -> None:
        self.async_listener = listener
        self.port = listener.port
        self.address = listener.address

    def accept(self, timeout: float | None = None) -> Peer:
        """The next peer: an Endpoint, or with listen(explicit=True) a Request. TimedOutError after `timeout`."""
        peer = _next(self.async_listener.accept(), timeout)
        return cast("Peer", Request(peer) if isinstance(peer, _listener.Request) else Endpoint(peer))

    def __iter__(self) -> Iterator[Peer]:
        while not self.async_listener.closed:
            try:
                peer = self.accept()
            except _errors.ClosingError:
                return  # another thread has closed it
            yield peer

    def info(self) -> dict[str, Any]:
        """Where it listens, and its counters."""
        return self.async_listener.info()

    @property
    def closed(self) -> bool:
        return self.async_listener.closed

    def close(self, timeout: float = 10.0) -> None:
        """Stop listening; endpoints that were accepted stay."""
        self.async_listener.close().wait(timeout)

    def __repr__(self) -> str:
        return _sync(self.async_listener)

    def __enter__(self) -> Listener[Peer]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@overload
def listen(
    port: int = 0,
    host: str | None = None,
    *,
    worker: Worker | None = None,
    explicit: Literal[False] = False,
    **options: Any,
) -> Listener[Endpoint]: ...
@overload
def listen(
    port: int = 0, host: str | None = None, *, worker: Worker | None = None, explicit: Literal[True], **options: Any
) -> Listener[Request]: ...
@overload
def listen(
    port: int = 0, host: str | None = None, *, worker: Worker | None = None, explicit: bool, **options: Any
) -> Listener[Any]: ...
def listen(
    port: int = 0, host: str | None = None, *, worker: Worker | None = None, explicit: bool = False, **options: Any
) -> Listener[Any]:
    """Listen for peers; see hawser.listen()."""
    return Listener(_listener.listen(port, host, worker=_worker(worker), explicit=explicit, **options))


def connect(host: str, port: int, *, worker: Worker | None = None, **options: Any) -> Endpoint:
    """Connect to a listener; see hawser.connect()."""
    return Endpoint(_connect.connect(host, port, worker=_worker(worker), **options).wait())


def connect_address(address: bytes, *, worker: Worker | None = None, **options: Any) -> Endpoint:
    """Connect to a worker by its address; see hawser.connect_address()."""
    return Endpoint(_connect.connect_address(address, worker=_worker(worker), **options).wait())


__all__ = [
    "Endpoint",
    "Listener",
    "Plan",
    "RemoteKey",
    "Request",
    "connect",
    "connect_address",
    "default_worker",
    "listen",
]
_defaults.at_exit.append(_close_defaults)
