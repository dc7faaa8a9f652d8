"""The options of one worker among those of a machine: CPUs, device, nearest network device, memory, plugins."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any

from dask.utils import parse_bytes

from ._groups import cpu_groups, rotated, visible_devices
from ._nearest import absent_devices, nearest_devices
from ._plugins import Affinity, CuDFSpill, Memory, PreImport
from ._setting import flag
from ._usable import cuda_device_count, no_cuda

log = logging.getLogger("hawser.dask")

NetDevices = str | Callable[[int], str] | None

# Options that mean nothing without a GPU, and what they are when they are not given.
GPU_OPTIONS: dict[str, Any] = {
    "device_memory_limit": "default",
    "enable_cudf_spill": False,
    "cudf_spill_stats": 0,
    "rmm_pool_size": None,
    "rmm_maximum_pool_size": None,
    "rmm_managed_memory": False,
    "rmm_async": False,
    "rmm_allocator_external_lib_list": None,
    "rmm_release_threshold": None,
    "rmm_log_directory": None,
    "rmm_track_allocations": False,
    "log_spilling": False,
}
_BYTES = ("pool_size", "maximum_pool_size", "release_threshold")


def refuse_gpu_options(options: dict[str, Any]) -> None:
    """Raises RuntimeError, with the reason, where options are given that need a GPU and there is none."""
    given = [name for name, default in GPU_OPTIONS.items() if options.get(name, default) != default]
    if given and (why := no_cuda()):
        raise RuntimeError(f"{', '.join(given)}: there is no GPU to use: {why}")


def _device_bytes(value: Any) -> int | None:
    """A size, or a fraction of the device's memory."""
    if value is None:
        return None
    if isinstance(value, float) and 0 < value <= 1:
        import rmm

        return int(rmm.mr.available_device_memory()[1] * value) // 256 * 256
    return int(parse_bytes(value))


@dataclasses.dataclass
class Machine:
    """The workers of this machine. devices: CUDA's, empty: CPU workers; groups: the CPUs of each."""

    groups: list[list[int]]
    devices: list[str]
    net_devices: NetDevices
    plugins: list[Any]

    def env(self, i: int) -> dict[str, str]:
        """What is set in the environment of worker i before anything is imported there."""
        env = {}
        visible = rotated(self.devices, i) if self.devices else None
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        if "UCX_NET_DEVICES" not in os.environ and (devices := self._net_devices(i, visible)):
            env["UCX_NET_DEVICES"] = devices
        return env

    def _net_devices(self, i: int, visible: str | None) -> str:
        if callable(self.net_devices):
            return self.net_devices(i)
        if self.net_devices == "auto":
            return nearest_devices(visible=visible or "", cpus=self.cpus(i))
        return self.net_devices or ""

    def cpus(self, i: int) -> list[int]:
        return self.groups[i % len(self.groups)]

    def options(self, i: int) -> dict[str, Any]:
        """The arguments of worker i's Nanny. A worker with a GPU makes its CUDA context before UCX starts."""
        first = self.devices and flag("create-cuda-context") is None
        config = {"distributed.comm.ucx.create-cuda-context": True} if first else {}
        return {"env": self.env(i), "config": config, "plugins": {Affinity(self.cpus(i)), *self.plugins}}


def machine(
    n_workers: int | None,
    devices: str | int | Iterable[int | str] | None,
    net_devices: NetDevices,
    pre_import: str | Iterable[str] | None,
    gpu: dict[str, Any],
) -> Machine:
    """Plan the workers of this machine: one for each GPU, or without one for each NUMA node."""
    if net_devices == "":
        raise ValueError('ucx_net_devices is ""; None leaves the choice to UCX')
    refuse_gpu_options(gpu)
    why = no_cuda()
    if devices is not None and why:
        raise RuntimeError(f"CUDA_VISIBLE_DEVICES: there is no GPU to use: {why}")
    value = os.environ.get("CUDA_VISIBLE_DEVICES") if devices is None else devices
    gpus = [] if why else visible_devices(value, cuda_device_count())
    groups = cpu_groups(n_workers or len(gpus) or None)
    plugins: list[Any] = [PreImport(pre_import)] if pre_import else []
    memory = {name.removeprefix("rmm_"): value for name, value in gpu.items() if name.startswith("rmm_") and value}
    if memory:
        if importlib.util.find_spec("rmm") is None:
            raise RuntimeError(f"{', '.join('rmm_' + name for name in memory)}: the package rmm is not installed")
        plugins.append(Memory(**{name: _device_bytes(v) if name in _BYTES else v for name, v in memory.items()}))
    if gpu.get("enable_cudf_spill"):
        plugins.append(CuDFSpill(True, gpu.get("cudf_spill_stats") or 0))
    planned = Machine(groups, gpus, net_devices, plugins)
    for i in range(len(groups)):
        names = planned.env(i).get("UCX_NET_DEVICES")
        if names and (absent := absent_devices(names)):
            # A worker that is told to use them says so and never arrives.
            raise RuntimeError(f"ucx_net_devices: this machine has no device {', '.join(absent)}")
    return planned


def device_store(gpu: dict[str, Any], memory_limit: int, local_directory: str | None) -> dict[str, Any]:
    """The worker's store for data on the device, which only Dask-CUDA has; empty where none is wanted."""
    limit = gpu.get("device_memory_limit", "default")
    if limit in ("default", None, 0) and not gpu.get("log_spilling"):
        return {}
    if importlib.util.find_spec("dask_cuda") is None:
        raise RuntimeError("device_memory_limit, log_spilling: they need the package dask-cuda")
    from dask_cuda.device_host_file import DeviceHostFile

    size = 0.8 if limit == "default" else limit
    options = {"device_memory_limit": _device_bytes(size), "memory_limit": memory_limit}
    return {"data": (DeviceHostFile, {**options, "log_spilling": gpu.get("log_spilling", False)})}
