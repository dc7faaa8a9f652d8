"""Memory that peers reach: registered memory, remote keys, plans."""

from __future__ import annotations

import contextlib
import ctypes
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Self

from . import _check, _core, _errors
from . import _constants as c
from ._unique import Unique

if TYPE_CHECKING:
    from ._context import Context
    from ._endpoint import Endpoint

_ACTIONS = {
    "add": c.Atomic.ADD,
    "and": c.Atomic.AND,
    "or": c.Atomic.OR,
    "xor": c.Atomic.XOR,
    "swap": c.Atomic.SWAP,
    "cswap": c.Atomic.CSWAP,
}


def _action(action: str) -> c.Atomic:
    if not isinstance(action, str) or action not in _ACTIONS:
        raise ValueError(f"action is one of {', '.join(_ACTIONS)}, not {action!r}")
    return _ACTIONS[action]


def _transfers(transfers: Iterable[tuple[str, RemoteKey, int, Any]]) -> Iterator[tuple[str, RemoteKey, int, Any]]:
    for transfer in _check.each("transfers", transfers):
        try:
            way, rkey, offset, buffer = transfer
        except (TypeError, ValueError):
            raise TypeError('transfers: each is a tuple of "put" or "get", a key, an offset, a buffer') from None
        yield way, _check.one("transfers", rkey, RemoteKey), offset, buffer


def hold(buffer: Any, writable: bool) -> tuple[int, int, int, Any]:
    """Address, bytes and kind of memory of an object, and what keeps it where it is."""
    kept = buffer
    with contextlib.suppress(TypeError, BufferError):
        kept = memoryview(buffer)  # first: a bytearray cannot be resized while there is a view
    address, length, kind, owner = _core.hold_memory(buffer, writable)
    # A capsule of DLPack's may be all that keeps the memory.
    return address, length, kind, kept if owner is None else (kept, owner)


class _Use:
    """Lives as long as a view."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner


class _Mapped:
    """Memory by its address, as memoryviews; how many there are is known.

    holders: what takes the memory along when it is closed: endpoint, worker, context.
    """

    def __init__(self, *holders: Any) -> None:
        self._uses: weakref.WeakSet[_Use] = weakref.WeakSet()
        for holder in holders:
            if holder._mapped is None:
                holder._mapped = weakref.WeakSet()
            holder._mapped.add(self)

    def view(self, address: int, length: int, owner: Any) -> memoryview:
        """A view that keeps `owner` alive."""
        array: Any = (ctypes.c_ubyte * length).from_address(address)
        array.use = _Use(owner)
        self._uses.add(array.use)
        return memoryview(array).cast("B")

    @property
    def used(self) -> bool:
        return len(self._uses) > 0


def check_views(holder: Any) -> None:
    """Raise BufferError while there are views of memory that goes with `holder`."""
    if holder._mapped is not None and any(mapped.used for mapped in holder._mapped):
        raise BufferError(f"there are views of memory that {holder!r} holds")


class _Object(Unique):
    """An object of the library that close(), `with` or the end of the last reference gives back."""

    id: int

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "id", 0):
            with contextlib.suppress(_errors.HawserError):
                _core.close(self.id)


def _whether_closed(thing: _Object) -> str:
    return "" if thing.id else ", closed"


class RegisteredMemory(_Object):
    """Memory that peers can reach by its key. Get one by Context.mem_register() or mem_alloc().

    `length` is in bytes; `buffer` is a writable memoryview of it (host memory only). What was
    registered is kept alive until close().
    """

    def __init__(self, context: Context, id: int, kept: Any = None) -> None:
        self.context = context
        self.id = id
        self._kept = kept
        self.address: int
        self.length: int
        self.address, self.length, kind = _core.mem_query(id)
        self.kind = c.Memory(kind)
        self._mapped = _Mapped(context) if kept is None else _Mapped()

    @property
    def buffer(self) -> memoryview:
        """The memory itself."""
        if not self.id or self.context.closed:
            raise ValueError("the memory is closed")
        return self._mapped.view(self.address, self.length, self if self._kept is None else self._kept)

    def rkey_pack(self, raw: bool = False) -> bytes:
        """The key by which a peer reaches it: send it there by any means. raw: for plain UCX programs."""
        return _core.rkey_pack(self.id, c.RkeyFlag.RAW if raw else 0)

    def advise(self, offset: int = 0, length: int | None = None, will_need: bool = True) -> None:
        """Say whether a part of it will be used soon. Raises UnsupportedError where UCX cannot."""
        advice = c.MemAdvise.WILLNEED if will_need else c.MemAdvise.NORMAL
        rest = self.length - _check.integer("offset", offset) if length is None else length
        _core.mem_advise(self.id, offset, rest, advice)

    def close(self) -> None:
        """Give it back. Raises BufferError while there are views of memory that was allocated here."""
        if self.id and self._kept is None and self._mapped.used:
            raise BufferError("there are views of this memory")
        id, self.id, self._kept = self.id, 0, None
        if id:
            with contextlib.suppress(_errors.StaleError):  # it went with its context
                _core.close(id)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"<hawser.RegisteredMemory of {self.length} bytes{_whether_closed(self)}>"


class RemoteKey(_Object):
    """What reaches a peer's memory. Get one by Endpoint.rkey_unpack().

    Offsets are in bytes from the beginning of that memory; its `length` is in bytes, and None for a
    key of a plain UCX program (`base` is 0 there, offsets are addresses).
    """

    def __init__(self, endpoint: Endpoint, packed: bytes, raw: bool) -> None:
        self.endpoint = endpoint
        self.id = _core.rkey_unpack(endpoint.id, _check.octets("packed", packed), c.RkeyFlag.RAW if raw else 0)
        self.base, length, kind, _, direct = _core.rkey_query(self.id)
        self.length = None if length == c.FOREVER else length
        self.kind = c.Memory(kind)
        self.direct = bool(direct)
        worker = endpoint.worker
        self._mapped = _Mapped(endpoint, worker, worker.context)

    def _at(self, offset: int) -> int:
        return self.base + (offset if type(offset) is int else _check.integer("offset", offset))

    def put(
        self, buffer: Any, offset: int = 0, timeout: float | None = None, stream: Any = None
    ) -> _core.Operation[None]:
        """Write a buffer to the peer's memory. Done: the buffer can be used again; after a flush
        posted later is done, the data is there. `stream` is a CUDA stream, as for Endpoint.send().
        Raises InvalidError out of bounds."""
        return _core.put(self.endpoint.worker, self.id, self._at(offset), buffer, timeout, stream)

    def put_notify(
        self, buffer: Any, value: int, offset: int = 0, timeout: float | None = None, stream: Any = None
    ) -> _core.Operation[None]:
        """As put(); when the data is there, the peer's recv_notify() gives `value`."""
        return _core.put_notify(self.endpoint.worker, self.id, self._at(offset), buffer, value, timeout, stream)

    def get(self, buffer: Any, offset: int = 0, timeout: float | None = None) -> _core.Operation[None]:
        """Read from the peer's memory into a writable buffer."""
        return _core.get(self.endpoint.worker, self.id, self._at(offset), buffer, timeout)

    def atomic(
        self,
        action: str,
        value: int,
        offset: int = 0,
        *,
        compare: int = 0,
        size: int = 8,
        fetch: bool = True,
        timeout: float | None = None,
    ) -> _core.Operation[int]:
        """Change an integer of 4 or 8 bytes in the peer's memory; gives what was there before.

        action: "add", "and", "or", "xor", "swap", or "cswap": stores `value` if `compare` is there.
        fetch: False: may be faster, and what is given means nothing. Numbers are unsigned.
        """
        code = _action(action) | (c.ATOMIC_FETCH if fetch else 0)
        return _core.atomic(self.endpoint.worker, self.id, self._at(offset), code, size, value, compare, timeout)

    def view(self, offset: int = 0, length: int | None = None) -> memoryview:
        """The peer's memory itself. Raises UnreachableError if it is not shared with this process."""
        offset = _check.integer("offset", offset)
        length = (self.length or 0) - offset if length is None else _check.integer("length", length)
        if self.length is not None and (offset < 0 or length < 0 or offset + length > self.length):
            raise _errors.from_code(_errors.ErrorCode.INVALID, "outside of the memory")
        return self._mapped.view(_core.rkey_ptr(self.id, self._at(offset)), length, self)

    def compare(self, other: RemoteKey) -> int:
        """0 if both reach the same memory over the same endpoint, else an order."""
        return _core.rkey_compare(self.id, _check.one("other", other, RemoteKey).id)

    def close(self) -> None:
        """Give it back. Raises BufferError while there are views."""
        if self.id and self._mapped.used:
            raise BufferError("there are views of this memory")
        id, self.id = self.id, 0
        if id:
            with contextlib.suppress(_errors.StaleError):  # it went with its endpoint
                _core.close(id)

    def __repr__(self) -> str:
        length = "unknown length" if self.length is None else f"{self.length} bytes"
        return f"<hawser.RemoteKey of {length}{_whether_closed(self)}>"


class Plan(_Object):
    """Puts and gets that are prepared once and posted often. Get one by Endpoint.plan()."""

    def __init__(self, endpoint: Endpoint, transfers: Iterable[tuple[str, RemoteKey, int, Any]]) -> None:
        self.endpoint = endpoint
        self._kept: list[Any] = []
        rows = []
        for way, rkey, offset, buffer in _transfers(transfers):
            if way not in ("put", "get"):
                raise ValueError(f'transfers: "put" or "get" is needed, not {way!r}')
            address, length, kind, kept = hold(buffer, way == "get")
            self._kept += [kept, rkey]
            event = c.EventKind.PUT if way == "put" else c.EventKind.GET
            rows.append((event, rkey.id, rkey._at(offset), address, length, kind, 0))
        self.id = _core.plan_open(endpoint.id, tuple(rows))
        self._count = len(rows)

    def post(self, timeout: float | None = None, stream: Any = None) -> _core.Operation[int]:
        """Do all of it, in any order; gives the number of bytes. What was written is there then.
        With a CUDA `stream`, as for Endpoint.send(), all of it begins once that stream's work is done."""
        return _core.plan_post(self.endpoint.worker, self.id, self._kept, timeout, stream)

    def close(self) -> None:
        """Give it and its buffers back; what was posted goes on."""
        id, self.id, self._kept = self.id, 0, []
        if id:
            with contextlib.suppress(_errors.StaleError):  # it went with its endpoint
                _core.close(id)

    def __repr__(self) -> str:
        return f"<hawser.Plan of {self._count} transfers{_whether_closed(self)}>"
