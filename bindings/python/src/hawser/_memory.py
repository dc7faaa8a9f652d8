"""Memory of objects without the buffer protocol: where it is, how long, of which kind."""

from __future__ import annotations

import ctypes
import math
from typing import Any

from . import _constants as c

# Device types of DLPack that UCX can move, and their kinds of memory.
_KINDS = {1: c.Memory.HOST, 2: c.Memory.CUDA, 3: c.Memory.HOST, 13: c.Memory.CUDA_MANAGED}
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> bool:
    """Whether an array is one piece without holes, row-major or column-major. Strides in bytes."""
    if strides is None or 0 in shape:
        return True
    for order in (range(len(shape) - 1, -1, -1), range(len(shape))):
        expected = itemsize
        for i in order:
            if shape[i] != 1 and strides[i] != expected:
                break
            expected *= shape[i]
        else:
            return True
    return False


_ADDRESSES = 1 << 64


def _bytes(shape: tuple[int, ...], itemsize: int) -> int:
    if itemsize < 0 or any(extent < 0 for extent in shape):
        raise BufferError(f"an array cannot have the shape {shape} of items of {itemsize} bytes")
    length = math.prod(shape, start=itemsize)
    if length >= 1 << 63:
        raise BufferError(f"no memory holds {length} bytes")
    return length


def _address(address: int) -> int:
    if not 0 <= address < _ADDRESSES:
        raise BufferError(f"there is no address {address}")
    return address


def _refuse_holes(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> None:
    if not is_contiguous(shape, strides, itemsize):
        raise BufferError("the array is not contiguous: copy it to one piece first")


def _from_cuda_array(array: dict[str, Any], owner: Any, writable: bool) -> tuple[int, int, int, Any]:
    address, read_only = array["data"]
    if read_only and writable:
        raise BufferError("the array is read-only: it cannot be received into")
    if array.get("mask") is not None:
        raise BufferError("arrays with a mask cannot be moved")
    itemsize = int(array["typestr"][2:])
    shape = tuple(array["shape"])
    _refuse_holes(shape, array.get("strides"), itemsize)
    return _address(address or 0), _bytes(shape, itemsize), c.Memory.CUDA, owner


def _from_dlpack(owner: Any, writable: bool) -> tuple[int, int, int, Any]:
    try:
        capsule = owner.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = owner.__dlpack__()
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        tensor = versioned.tensor
        if writable and versioned.flags & _READ_ONLY:
            raise BufferError("the tensor is read-only: it cannot be received into")
    else:
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    if tensor.device_type not in _KINDS:
        raise BufferError(f"memory of DLPack device type {tensor.device_type} cannot be moved")
    itemsize = (tensor.bits * tensor.lanes + 7) // 8
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] * itemsize for i in range(tensor.ndim)) if tensor.strides else None
    _refuse_holes(shape, strides, itemsize)
    address = _address((tensor.data or 0) + tensor.byte_offset)
    # The capsule, never consumed, gives the tensor back when it goes.
    return address, _bytes(shape, itemsize), _KINDS[tensor.device_type], (owner, capsule)


def resolve(owner: Any, writable: bool) -> tuple[int, int, int, Any]:
    """Address, bytes, kind of memory, and what keeps it alive."""
    array = getattr(owner, "__cuda_array_interface__", None)
    if array is not None:
        return _from_cuda_array(array, owner, writable)
    if hasattr(owner, "__dlpack__"):
        return _from_dlpack(owner, writable)
    raise TypeError(
        "a bytes-like object, or one with __cuda_array_interface__ or __dlpack__, "
        f"is needed, not {type(owner).__name__}"
    )


def stream_number(stream: Any) -> int:
    """The CUstream of what a library calls a stream: a number, __cuda_stream__ (cuda.core, CuPy), or the
    attribute of CuPy, PyTorch or Numba."""
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    for name in ("ptr", "cuda_stream", "handle"):
        if hasattr(stream, name):
            stream = getattr(stream, name)
            break
    number = getattr(stream, "value", stream)  # ctypes has None for 0
    try:
        return int(number) if number is not None else 0
    except (TypeError, ValueError):
        raise TypeError(f"a CUDA stream or its number is needed, not {type(stream).__name__}") from None
