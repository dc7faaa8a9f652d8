"""What each worker of a cluster does when it has started."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Iterable
from typing import Any

from distributed import WorkerPlugin

log = logging.getLogger("hawser.dask")


class Affinity(WorkerPlugin):
    """Keeps a worker on its CPUs; where that is refused it is said and the worker goes on."""

    def __init__(self, cpus: Iterable[int]) -> None:
        self.cpus = sorted(cpus)
        self.name = "hawser-affinity"

    def setup(self, worker: Any = None) -> None:
        try:
            # Every thread: those of the executor and of the libraries run already.
            for thread in os.listdir("/proc/self/task"):
                os.sched_setaffinity(int(thread), self.cpus)
        except OSError as e:
            log.warning("the worker cannot be kept on the CPUs %s: %s", self.cpus, e)


class PreImport(WorkerPlugin):
    """Imports modules before the first task needs them."""

    def __init__(self, modules: str | Iterable[str]) -> None:
        names = modules.split(",") if isinstance(modules, str) else modules
        self.modules = [name.strip() for name in names if name.strip()]
        self.name = "hawser-pre-import"

    def setup(self, worker: Any = None) -> None:
        for name in self.modules:
            importlib.import_module(name)


class Memory(WorkerPlugin):
    """RMM's allocator of a worker's device, by the options of Dask-CUDA without "rmm_"."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.name = "hawser-rmm"

    def setup(self, worker: Any = None) -> None:
        import rmm

        o = self.options
        if o.get("async"):
            resource = rmm.mr.CudaAsyncMemoryResource(
                initial_pool_size=o.get("pool_size"), release_threshold=o.get("release_threshold")
            )
            if o.get("maximum_pool_size"):
                resource = rmm.mr.LimitingResourceAdaptor(resource, allocation_limit=o["maximum_pool_size"])
            rmm.mr.set_current_device_resource(resource)
        elif o.get("pool_size") or o.get("managed_memory"):
            rmm.reinitialize(
                pool_allocator=bool(o.get("pool_size")),
                managed_memory=bool(o.get("managed_memory")),
                initial_pool_size=o.get("pool_size"),
                maximum_pool_size=o.get("maximum_pool_size"),
            )
        if folder := o.get("log_directory"):
            rmm.enable_logging(log_file_name=os.path.join(folder, f"rmm_log_{os.getpid()}.txt"))
        if o.get("track_allocations"):
            resource = rmm.mr.get_current_device_resource()
            rmm.mr.set_current_device_resource(rmm.mr.TrackingResourceAdaptor(resource))
        for library in o.get("allocator_external_lib_list") or ():
            _use_for(library)


def _use_for(library: str) -> None:
    """Have another library allocate through RMM."""
    if library == "torch":
        import torch
        from rmm.allocators.torch import rmm_torch_allocator

        torch.cuda.memory.change_current_allocator(rmm_torch_allocator)
    elif library == "cupy":
        import cupy
        from rmm.allocators.cupy import rmm_cupy_allocator

        cupy.cuda.set_allocator(rmm_cupy_allocator)
    else:
        raise ValueError(f"RMM cannot allocate for {library!r}: torch or cupy")


class CuDFSpill(WorkerPlugin):
    """Has cuDF spill device memory to the host."""

    def __init__(self, enabled: bool, stats: int) -> None:
        self.enabled = enabled
        self.stats = stats
        self.name = "hawser-cudf"

    def setup(self, worker: Any = None) -> None:
        import cudf

        cudf.set_option("spill", self.enabled)
        cudf.set_option("spill_stats", self.stats)
