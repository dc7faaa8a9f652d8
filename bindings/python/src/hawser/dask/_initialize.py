"""Settings for the process that starts a scheduler or a client."""

from __future__ import annotations

import logging

import dask

from ._usable import create_cuda_context as make_context
from ._usable import no_cuda

log = logging.getLogger("hawser.dask")


def transport_settings(
    enable_tcp_over_ucx: bool | None = None,
    enable_infiniband: bool | None = None,
    enable_nvlink: bool | None = None,
    enable_rdmacm: bool | None = None,
) -> dict[str, bool | None]:
    """The keys of distributed.comm.ucx for Dask-CUDA's options.

    None leaves a transport to UCX; where one is False and none is True, those that are None are wanted. CUDA memory
    goes along with any choice where there is a CUDA device.
    """
    chosen = {"tcp": enable_tcp_over_ucx, "infiniband": enable_infiniband, "nvlink": enable_nvlink}
    if False in chosen.values() and True not in chosen.values():
        chosen = {key: value is None for key, value in chosen.items()}
    if True in chosen.values() and no_cuda() is None:
        chosen["cuda-copy"] = True
    return {**chosen, "rdmacm": enable_rdmacm}


def initialize(
    create_cuda_context: bool = True,
    enable_tcp_over_ucx: bool | None = None,
    enable_infiniband: bool | None = None,
    enable_nvlink: bool | None = None,
    enable_rdmacm: bool | None = None,
) -> None:
    """Set this process up for `ucx://` with Dask-CUDA's options, before its first Client or Scheduler.

    create_cuda_context: make a CUDA context now, as UCX wants it; without a CUDA device that is said, and nothing made.
    What this machine does not have is refused, with the reason, when the first connection is made.
    """
    settings = transport_settings(enable_tcp_over_ucx, enable_infiniband, enable_nvlink, enable_rdmacm)
    dask.config.set({f"distributed.comm.ucx.{key}": value for key, value in settings.items()})
    if create_cuda_context:
        if why := no_cuda():
            log.info("no CUDA context: %s", why)
        else:
            make_context()
