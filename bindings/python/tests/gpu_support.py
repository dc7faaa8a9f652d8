"""Arrays in memory of a GPU: the machine's own, or where it has none the one in software of the C tests, on which UCX's
own transports for GPUs run. Import it before the library is used."""

import ctypes
import os
from pathlib import Path

import pytest


def _driver():
    try:
        return ctypes.CDLL("libcuda.so.1"), False
    except OSError:
        soft = Path(os.environ["HAWSER_SOFT_GPU"])
        # UCX asks for them by name, and gets what is loaded by that name.
        ctypes.CDLL(str(soft / "libnvidia-ml.so.1"))
        return ctypes.CDLL(str(soft / "libcuda.so.1")), True


driver, SOFT = _driver()


def check(error):
    assert error == 0, f"CUDA's error {error}"


def enter():
    """Make the primary context current on this thread."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(driver.cuCtxGetCurrent(ctypes.byref(context)))
    if not context:
        check(driver.cuDeviceGet(ctypes.byref(device), 0))
        check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        check(driver.cuCtxSetCurrent(context))


def use():
    """The same at first. Skips where there is no GPU, or UCX cannot handle its memory."""
    import hawser

    count = ctypes.c_int()
    if (error := driver.cuInit(0)) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        pytest.skip(f"libcuda is here, but no GPU: error {error}, {count.value} devices")
    enter()
    with hawser.Context() as context:
        try:
            context.mem_register(GpuArray(64)).close()
        except hawser.BufferKindError as e:
            pytest.skip(f"a GPU's memory is refused: {e}")


class GpuArray:
    """So many bytes, or these bytes."""

    def __init__(self, data):
        self.nbytes = data if isinstance(data, int) else len(data)
        self._pointer = ctypes.c_void_p()
        if self.nbytes:
            enter()
            check(driver.cuMemAlloc_v2(ctypes.byref(self._pointer), ctypes.c_size_t(self.nbytes)))
            if not isinstance(data, int):
                check(driver.cuMemcpyHtoD_v2(self._pointer, bytes(data), ctypes.c_size_t(self.nbytes)))
            else:
                check(driver.cuMemsetD8_v2(self._pointer, 0xEE, ctypes.c_size_t(self.nbytes)))

    def __del__(self):
        if self._pointer:
            enter()
            driver.cuMemFree_v2(self._pointer)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self._pointer.value or 0, False),
            "version": 3,
            "strides": None,
        }

    def __len__(self):
        return self.nbytes

    def __bytes__(self):
        out = ctypes.create_string_buffer(max(self.nbytes, 1))
        if self.nbytes:
            enter()
            check(driver.cuMemcpyDtoH_v2(out, self._pointer, ctypes.c_size_t(self.nbytes)))
        return out.raw[: self.nbytes]
