"""Arrays as UCX-Py describes them: host memory by the buffer protocol, CUDA memory by its interface."""

from __future__ import annotations

from typing import Any

from hawser import _core


def _strides_of(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Of a row-major array, in bytes."""
    strides = []
    step = itemsize
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


@_core.array_class
class Array:
    """What a buffer is: where, how long, which shape. `obj` is the object that owns the memory."""

    __slots__ = ("_strides", "cuda", "itemsize", "ndim", "obj", "ptr", "readonly", "shape", "source")

    def __init__(self, obj: Any) -> None:
        interface = getattr(obj, "__cuda_array_interface__", None)
        self.source = obj
        self.cuda = interface is not None
        if interface is not None:
            self._from_cuda(obj, interface)
            return
        view = memoryview(obj)
        if view.suboffsets:
            raise NotImplementedError("Suboffsets are not supported")
        self.obj = view.obj
        self.ptr = _core.pointer(obj)
        self.readonly = view.readonly
        self.itemsize = view.itemsize
        self.ndim = view.ndim
        self.shape = tuple(view.shape or ())
        self._strides = tuple(view.strides or ())

    def _from_cuda(self, obj: Any, interface: dict[str, Any]) -> None:
        typestr = interface.get("typestr")
        if not typestr:
            raise ValueError("The CUDA array interface has no typestr")
        if interface.get("mask") is not None:
            raise NotImplementedError("CUDA arrays with a mask are not supported")
        self.obj = obj
        self.ptr, self.readonly = interface["data"]
        self.itemsize = int(typestr[2:])
        self.shape = tuple(interface["shape"])
        self.ndim = len(self.shape)
        self._strides = tuple(interface.get("strides") or _strides_of(self.shape, self.itemsize))

    def __reduce__(self) -> Any:
        raise TypeError("Array cannot be pickled")

    @property
    def strides(self) -> tuple[int, ...]:
        return self._strides

    @property
    def nbytes(self) -> int:
        size = self.itemsize
        for extent in self.shape:
            size *= extent
        return size

    def _is_contiguous(self, order: range) -> bool:
        if 0 in self.shape:
            return True
        step = self.itemsize
        for i in order:
            if self.shape[i] != 1 and self._strides[i] != step:
                return False
            step *= self.shape[i]
        return True

    @property
    def c_contiguous(self) -> bool:
        return self._is_contiguous(range(self.ndim - 1, -1, -1))

    @property
    def f_contiguous(self) -> bool:
        return self._is_contiguous(range(self.ndim))

    @property
    def contiguous(self) -> bool:
        return self.c_contiguous or self.f_contiguous


def asarray(obj: Any) -> Array:
    """An Array of anything that is one, or has one of the two interfaces."""
    return obj if isinstance(obj, Array) else Array(obj)
