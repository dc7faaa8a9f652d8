"""CUDA's context of a thread, through the driver alone: neither cuda-core nor another package is needed."""

from __future__ import annotations

import ctypes


def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise ImportError(f"there is no CUDA driver: {e}") from e


def _check(cuda: ctypes.CDLL, error: int) -> None:
    if error:
        name = ctypes.c_char_p()
        known = cuda.cuGetErrorName(error, ctypes.byref(name)) == 0 and name.value is not None
        raise RuntimeError(f"CUDA: {name.value.decode() if known and name.value else f'error {error}'}")


def ensure_cuda_context(device_id: int = 0) -> None:
    """Make the primary context of a device that is visible current on this thread.

    Raises ImportError without a driver, RuntimeError with CUDA's name of what failed.
    """
    cuda = _driver()
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _check(cuda, cuda.cuInit(0))
    _check(cuda, cuda.cuDeviceGet(ctypes.byref(device), device_id))
    _check(cuda, cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    _check(cuda, cuda.cuCtxSetCurrent(context))


def synchronize_default_stream(device_id: int = 0) -> None:
    """Wait for all that a device was told to do. Raises as ensure_cuda_context()."""
    ensure_cuda_context(device_id)
    cuda = _driver()
    _check(cuda, cuda.cuCtxSynchronize())


__all__ = ["ensure_cuda_context", "synchronize_default_stream"]
