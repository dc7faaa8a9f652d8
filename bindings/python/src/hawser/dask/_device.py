"""Frames that stay in memory of a GPU at both ends, where both processes have made a CUDA context."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import hawser
from hawser import _core

from ._usable import create_cuda_context

# What a message to a peer that takes such frames is made of.
SERIALIZERS = ("cuda", "dask", "pickle", "error")

_CUDA = int(hawser.Memory.CUDA)
_lock = threading.Lock()
_able: weakref.WeakKeyDictionary[hawser.Context, bool] = weakref.WeakKeyDictionary()


def _driver() -> ctypes.CDLL | None:
    """CUDA's driver library if this process has loaded it."""
    with contextlib.suppress(OSError):
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    return None


def _check(error: int) -> None:
    if error:
        raise MemoryError(f"the GPU's memory: CUDA's error {error}")


def _enter(cuda: ctypes.CDLL) -> bool:
    """Have this thread a CUDA context: the device's, if somebody has made it. False: nobody has."""
    context, flags, active = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_int()
    if cuda.cuCtxGetCurrent(ctypes.byref(context)):
        return False
    if context:
        return True
    if cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) or not active:
        return False
    with contextlib.suppress(RuntimeError):
        create_cuda_context()
        return True
    return False


def usable(context: hawser.Context) -> bool:
    """Whether frames can be received into memory of a GPU now. It may change as the process makes its CUDA context."""
    if (cuda := _driver()) is None or not _enter(cuda):
        return False
    with _lock:
        if context not in _able:
            try:
                context.mem_register(DeviceBuffer(64)).close()
                _able[context] = True
            except (hawser.HawserError, MemoryError):
                _able[context] = False
        return _able[context]


def _free(cuda: ctypes.CDLL, address: ctypes.c_void_p) -> None:
    """On any thread."""
    if _enter(cuda):
        cuda.cuMemFree_v2(address)


class DeviceBuffer:
    """Memory of a GPU, for processes that have none of the packages that allocate it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self._address = ctypes.c_void_p()
        if nbytes:
            cuda = _driver()
            if cuda is None or not _enter(cuda):
                raise MemoryError("the GPU's memory: there is no CUDA context")
            _check(cuda.cuMemAlloc_v2(ctypes.byref(self._address), ctypes.c_size_t(nbytes)))
            weakref.finalize(self, _free, cuda, self._address).atexit = False

    def __len__(self) -> int:
        return self.nbytes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self._address.value or 0, False),
            "version": 3,
        }


class DeviceArray:
    """An array in memory that something else holds, where no package is here that has arrays of a GPU."""

    def __init__(self, memory: Any, shape: tuple[int, ...], typestr: str) -> None:
        self.shape, self.typestr, self._memory = shape, typestr, memory

    @property
    def nbytes(self) -> int:
        """Bytes of all items."""
        return math.prod(self.shape, start=int(self.typestr[2:]))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no len()")
        return self.shape[0]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        memory = self._memory.__cuda_array_interface__
        return {"shape": self.shape, "typestr": self.typestr, "data": memory["data"], "version": 3}


def allocator() -> Callable[[int], Any]:
    """What makes memory of a GPU: of the package that the program uses, so that its pool is, or the driver's."""
    if "rmm" in sys.modules:
        return lambda n: sys.modules["rmm"].DeviceBuffer(size=n)
    if "cupy" in sys.modules:
        return lambda n: sys.modules["cupy"].empty(n, "u1")
    if "torch" in sys.modules:
        return lambda n: sys.modules["torch"].empty(n, dtype=sys.modules["torch"].uint8, device="cuda")
    return DeviceBuffer


def is_device(frame: Any) -> bool:
    """Whether a frame is in memory of a GPU."""
    return not isinstance(frame, (bytes, bytearray, memoryview)) and hasattr(frame, "__cuda_array_interface__")


def frame_bytes(frame: Any) -> int:
    """Bytes of a frame of any kind of memory."""
    if isinstance(frame, (bytes, bytearray)):
        return len(frame)
    return frame.nbytes if isinstance(frame, memoryview) else int(_core.memory(frame)[1])


def synchronize() -> None:
    """Wait for the default stream, which may be writing what is sent, or giving memory that is received into."""
    cuda = _driver()
    if cuda is not None and _enter(cuda):
        _check(cuda.cuStreamSynchronize(None))


def memory_for(lengths: Sequence[int], kinds: Sequence[int], host: Callable[[int], Any]) -> list[Any]:
    """Memory for the frames of a message: of the kind that they have at the sender, where that can be."""
    if _CUDA not in kinds or (driver := _driver()) is None or not _enter(driver):
        return [host(n) for n in lengths]
    device = allocator()
    frames = [device(n) if kind == _CUDA else host(n) for n, kind in zip(lengths, kinds, strict=True)]
    synchronize()
    return frames
