"""Dask over Hawser: the schemes `ucx://` and `hawser://`.

    LocalCluster(protocol="ucx")
    dask scheduler --protocol ucx

`hawser://` always works where this package is installed. `ucx://` is taken over when Dask's comms
are imported (see _hawser_dask), if `distributed.comm.ucx.owner` says so: "auto" (default) takes it
unless distributed-ucxx is installed, "hawser" takes it from everybody, "none" leaves it alone.
"""

import importlib
from typing import Any

# First: the hook may want this package while that is being imported.
import distributed.comm as _  # noqa: F401

from ._backend import HawserBackend, UCXBackend, UCXXBackend
from ._comm import HawserComm
from ._config import load_defaults
from ._connector import HawserConnector, UCXConnector
from ._initialize import initialize
from ._listener import HawserListener, UCXListener
from ._owner import claim_ucx

load_defaults()
claim_ucx()


# These need all of distributed, which is still being imported when this is.
_LATER = {
    "LocalCluster": "_cluster",
    "SSHCluster": "_ssh",
    "bandwidths": "_transfers",
    "learn_bandwidths": "_learn",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "HawserBackend",
    "HawserComm",
    "HawserConnector",
    "HawserListener",
    "LocalCluster",
    "SSHCluster",
    "UCXBackend",
    "UCXConnector",
    "UCXListener",
    "UCXXBackend",
    "bandwidths",
    "claim_ucx",
    "initialize",
    "learn_bandwidths",
]
