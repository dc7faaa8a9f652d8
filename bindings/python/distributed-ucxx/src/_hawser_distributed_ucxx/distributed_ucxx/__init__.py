"""The names of distributed-ucxx that Dask-CUDA and others import, for Hawser's `ucx://` and `ucxx://`.

distributed.comm imports this package while it is being imported itself, so what needs distributed is looked up later.
The package lies in a folder that a .pth file puts last on the path: where distributed-ucxx is installed, that is found.
"""

from typing import Any

from . import config, ucxx

_ucxx = ucxx  # tests of others set the other name to None, to have UCX started anew

__version__ = "0.52.0"
__git_commit__ = ""

__all__ = ["UCXXBackend", "UCXXBackendLegacyPrefix", "__git_commit__", "__version__", "config"]


def __getattr__(name: str) -> Any:
    if name in ("UCXXBackend", "UCXXBackendLegacyPrefix"):
        return getattr(_ucxx, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
