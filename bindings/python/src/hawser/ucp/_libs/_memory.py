"""Addresses of workers, and registered memory."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from hawser import _constants as c
from hawser import _core
from hawser._check import octets

from ._object import UCXObject
from ._request import fitting, posted
from .arr import asarray
from .exceptions import HawserError

if TYPE_CHECKING:
    from ._context import UCXContext
    from ._worker import UCXWorker


class UCXAddress(bytes):
    """The address of a worker: bytes that others connect by."""

    @classmethod
    def from_buffer(cls, buffer: Any) -> UCXAddress:
        """An address that came as bytes."""
        return cls(octets("buffer", buffer))

    @classmethod
    def from_worker(cls, worker: UCXWorker) -> UCXAddress:
        """The address of a worker."""
        flags = c.Address.PLAIN if worker.of_ucxpy else 0
        return cls(posted(_core.worker_address, "ucp_worker_get_address", worker._worker.id, flags))

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
        return cls(octets("buffer", buffer))

    @classmethod
    def from_mem_handle(cls, mem: UCXMemoryHandle) -> PackedRemoteKey:
        """The key of registered memory."""
        return cls(posted(_core.rkey_pack, "ucp_rkey_pack", mem.mem_handle, 0))

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
        size = fitting("size", size, c.FOREVER, "size_t")
        return cls(ctx, posted(_core.mem_alloc, "ucp_mem_map", ctx._context.id, max(size, 1)))

    @classmethod
    def map(cls, ctx: UCXContext, mem: Any) -> UCXMemoryHandle:
        """Register a buffer; it is kept alive until the handle is closed."""
        array = asarray(mem)
        if not array.contiguous:  # what lies from its address on would not be its own memory
            raise ValueError("Array must be C or F contiguous")
        _core.memory(array.source)  # which refuses what holds Python objects: peers would write over them
        if array.nbytes == 0:
            return cls.alloc(ctx, 0)
        kind = c.Memory.CUDA if array.cuda else c.Memory.HOST
        id = posted(_core.mem_register, "ucp_mem_map", ctx._context.id, array.ptr, array.nbytes, kind)
        return cls(ctx, id, array)

    def pack_rkey(self) -> PackedRemoteKey:
        """The key by which others reach it."""
        return PackedRemoteKey.from_mem_handle(self)

    def _finalize(self) -> None:
        with contextlib.suppress(HawserError):
            _core.close(self.mem_handle)
