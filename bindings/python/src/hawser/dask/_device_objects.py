"""Dask's family "cuda" for PyTorch's tensors, and for all objects with `__cuda_array_interface__` that nobody else has
told it of. What Dask knows itself (CuPy, Numba, RMM, cuDF) stays as it is."""

from __future__ import annotations

import math
import sys
from typing import Any

from distributed.protocol.cuda import cuda_deserialize, cuda_serialize

from hawser._memory import is_contiguous

from ._device import DeviceArray

Parts = tuple[dict[str, Any], list[Any]]


def _dump_array(x: Any) -> Parts:
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is None:
        raise NotImplementedError(type(x))
    shape, typestr = tuple(interface["shape"]), interface["typestr"]
    items = int(typestr[2:])
    if interface.get("mask") is not None or not is_contiguous(shape, interface.get("strides"), items):
        raise NotImplementedError(f"{type(x)}: not contiguous, or with a mask")
    # The array itself, since its memory is its own.
    return {"shape": shape, "typestr": typestr}, [x] if math.prod(shape, start=items) else []


def _load_array(header: dict[str, Any], frames: list[Any]) -> Any:
    """An array of CuPy or Numba, if the program uses it."""
    shape, typestr = tuple(header["shape"]), header["typestr"]
    array = DeviceArray(frames[0] if frames else _Nothing(), shape, typestr)
    if "cupy" in sys.modules:
        return sys.modules["cupy"].asarray(array)
    if "numba.cuda" in sys.modules:
        return sys.modules["numba.cuda"].as_cuda_array(array)
    return array


class _Nothing:
    __cuda_array_interface__ = {"data": (0, False)}


def _dump_tensor(x: Any) -> Parts:
    if not x.is_cuda or x.layout is not sys.modules["torch"].strided:
        raise NotImplementedError("a tensor that is not on a GPU, or sparse")
    data = x.detach().contiguous()
    header = {
        "shape": tuple(data.shape),
        "dtype": str(data.dtype).removeprefix("torch."),
        "requires_grad": bool(x.requires_grad),
        "parameter": isinstance(x, sys.modules["torch"].nn.Parameter),
    }
    return header, [data.reshape(-1).view(sys.modules["torch"].uint8)] if data.numel() else []


def _load_tensor(header: dict[str, Any], frames: list[Any]) -> Any:
    import torch

    dtype = getattr(torch, header["dtype"])
    if frames:
        data = torch.as_tensor(frames[0], device="cuda").view(dtype).reshape(header["shape"])
    else:
        data = torch.empty(header["shape"], dtype=dtype, device="cuda")
    if header["parameter"]:
        return torch.nn.Parameter(data, requires_grad=header["requires_grad"])
    return data.requires_grad_(header["requires_grad"]) if header["requires_grad"] else data


def register() -> None:
    """Tell Dask, once."""

    def tensors() -> None:
        import torch

        cuda_serialize.register(torch.Tensor)(_dump_tensor)
        cuda_deserialize.register(torch.Tensor)(_load_tensor)

    for dispatch, function in ((cuda_serialize, _dump_array), (cuda_deserialize, _load_array)):
        dispatch.register_lazy("torch")(tensors)
        dispatch.register(object)(function)
