"""Memory of others."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawser import _constants as c
from hawser import _core
from hawser._check import integer, octets, one

from ._memory import PackedRemoteKey
from ._object import UCXObject
from ._progress import HANDSHAKE_SECONDS, progress_all
from ._request import Call, UCXRequest, callback, fitting, posted, start_send, view_of
from .arr import Array, asarray
from .exceptions import HawserError, UCXError

if TYPE_CHECKING:
    from ._endpoint import UCXEndpoint


class UCXRkey(UCXObject):
    """A key that is usable on one endpoint."""

    def __init__(self, ep: UCXEndpoint, rkey: PackedRemoteKey) -> None:
        self._closed = True
        self.ep: UCXEndpoint = one("ep", ep, UCXObject)  # type: ignore[assignment]
        packed = octets("rkey", rkey)
        self.id: int = posted(_core.rkey_unpack, "ucp_ep_rkey_unpack", ep.handle, packed, 0)
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
    view = view_of(asarray(buffer), nbytes, transfer is _get)
    worker = one("rkey", rkey, UCXRkey).ep.worker._worker
    return posted(transfer, name, worker, rkey.id, fitting("remote_addr", remote_addr, c.FOREVER, "uint64_t"), view)


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
    ending = callback(cb_func, cb_args, cb_kwargs)
    operation = _move(transfer, name, buffer, nbytes, remote_addr, rkey)
    return start_send(Call(operation, ending, name))


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
        size = integer("size", size) or array.nbytes
        if integer("offset", offset) < 0 or size > array.nbytes or size + offset > self._length:
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
        progress_all(lambda: bool(ended), HANDSHAKE_SECONDS)
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
        if integer("whence", whence) not in base:
            raise ValueError("Invalid argument")
        self._at = min(max(base[whence] + integer("pos", pos), 0), self._length)
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
        wanted = -1 if size is None else integer("size", size)
        data = bytearray(left if wanted < 0 else min(wanted, left))
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
