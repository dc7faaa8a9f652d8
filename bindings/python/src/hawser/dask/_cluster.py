"""A cluster on this machine whose workers each have CPUs, a device and a network device of their own."""

from __future__ import annotations

import logging
import multiprocessing.forkserver
import warnings
from collections.abc import Iterable
from typing import Any

import dask
import distributed
from distributed.worker_memory import parse_memory_limit

from ._initialize import initialize
from ._worker_options import NetDevices, device_store, machine

log = logging.getLogger("hawser.dask")

_OURS = ("ucx", "ucx://", "hawser", "hawser://", "ucxx", "ucxx://")


class LocalCluster(distributed.LocalCluster):
    """Dask's LocalCluster with the options of Dask-CUDA's LocalCUDACluster, and without a GPU too.

    One worker for each GPU, or where there is none for each NUMA node (n_workers: for so many groups of CPUs), which
    stays on its CPUs. threads_per_worker: with GPUs 1, else one for each CPU of the group.

    ucx_net_devices: what UCX_NET_DEVICES is to be: a string, a function of the worker's number, "auto" (nearest to the
    worker's GPU or CPUs) or None (UCX's choice). enable_*: as for initialize(), for this process and all workers.
    Options that need a GPU raise RuntimeError with the reason where there is none. processes=False raises ValueError,
    enable_* with another protocol TypeError.
    """

    def __init__(
        self,
        CUDA_VISIBLE_DEVICES: str | int | Iterable[int | str] | None = None,
        n_workers: int | None = None,
        threads_per_worker: int | None = None,
        memory_limit: Any = "auto",
        device_memory_limit: Any = "default",
        enable_cudf_spill: bool = False,
        cudf_spill_stats: int = 0,
        local_directory: str | None = None,
        protocol: str | None = None,
        enable_tcp_over_ucx: bool | None = None,
        enable_infiniband: bool | None = None,
        enable_nvlink: bool | None = None,
        enable_rdmacm: bool | None = None,
        rmm_pool_size: Any = None,
        rmm_maximum_pool_size: Any = None,
        rmm_managed_memory: bool = False,
        rmm_async: bool = False,
        rmm_allocator_external_lib_list: list[str] | None = None,
        rmm_release_threshold: Any = None,
        rmm_log_directory: str | None = None,
        rmm_track_allocations: bool = False,
        log_spilling: bool = False,
        pre_import: str | Iterable[str] | None = None,
        ucx_net_devices: NetDevices = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("processes", True) is False:
            raise ValueError("processes=False: each worker needs a process of its own for its CPUs and devices")
        transports = {
            "enable_tcp_over_ucx": enable_tcp_over_ucx,
            "enable_infiniband": enable_infiniband,
            "enable_nvlink": enable_nvlink,
            "enable_rdmacm": enable_rdmacm,
        }
        protocol = protocol or "ucx"
        if protocol not in _OURS and any(value is not None for value in transports.values()):
            raise TypeError(f"enable_* are for the protocol ucx, not {protocol}")
        if enable_nvlink and rmm_pool_size is None:
            warnings.warn("enable_nvlink without rmm_pool_size: each allocation is mapped anew", stacklevel=2)
        gpu = {
            "device_memory_limit": device_memory_limit,
            "enable_cudf_spill": enable_cudf_spill,
            "cudf_spill_stats": cudf_spill_stats,
            "rmm_pool_size": rmm_pool_size,
            "rmm_maximum_pool_size": rmm_maximum_pool_size,
            "rmm_managed_memory": rmm_managed_memory,
            "rmm_async": rmm_async,
            "rmm_allocator_external_lib_list": rmm_allocator_external_lib_list,
            "rmm_release_threshold": rmm_release_threshold,
            "rmm_log_directory": rmm_log_directory,
            "rmm_track_allocations": rmm_track_allocations,
            "log_spilling": log_spilling,
        }
        self._machine = machine(n_workers, CUDA_VISIBLE_DEVICES, ucx_net_devices, pre_import, gpu)
        self._threads = threads_per_worker
        count = n_workers if n_workers is not None else len(self._machine.devices) or len(self._machine.groups)
        limit = parse_memory_limit(memory_limit, 1, max(count, 1), logger=log)
        if any(value is not None for value in transports.values()):
            initialize(create_cuda_context=False, **transports)
        if dask.config.get("distributed.worker.multiprocessing-method") == "forkserver":
            # Before UCX starts in this process: InfiniBand forbids to fork afterwards.
            multiprocessing.forkserver.ensure_running()
        super().__init__(
            n_workers=0,
            threads_per_worker=threads_per_worker or 1,
            memory_limit=limit,
            local_directory=local_directory,
            protocol=protocol,
            **device_store(gpu, limit or 0, local_directory),
            **kwargs,
        )
        for _ in range(count):
            self.worker_spec.update(self.new_worker_spec())
        if not self.asynchronous:
            try:
                self.sync(self._correct_state)
            except BaseException:
                self.close()
                raise

    def new_worker_spec(self) -> dict[Any, dict[str, Any]]:
        """The next worker, also when the cluster is scaled or adapts itself: the first number that is free."""
        number = next(i for i in range(len(self.worker_spec) + 1) if i not in self.worker_spec)
        spec = {**self.new_spec, "options": dict(self.new_spec["options"])}
        options = spec["options"]
        own = self._machine.options(number)
        options["env"] = {**(options.get("env") or {}), **own["env"]}
        options["config"] = {**own["config"], **(options.get("config") or {})}
        options["plugins"] = {*(options.get("plugins") or ()), *own["plugins"]}
        if self._threads is None and not self._machine.devices:
            options["nthreads"] = len(self._machine.cpus(number))
        return {number: spec}
