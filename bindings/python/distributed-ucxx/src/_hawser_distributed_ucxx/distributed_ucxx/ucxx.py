"""distributed_ucxx.ucxx: its classes are Hawser's; `ucxx` is None until UCX has been started for Dask."""

from typing import Any

# distributed-ucxx's name: hawser.dask's.
_CLASSES = {
    "UCXX": "HawserComm",
    "UCXXBackend": "UCXBackend",
    "UCXXBackendLegacyPrefix": "UCXXBackend",
    "UCXXConnector": "UCXConnector",
    "UCXXListener": "UCXListener",
}


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        from hawser import dask

        return getattr(dask, _CLASSES[name])
    if name == "ucxx":
        return _started()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _started() -> Any:
    """Dask-CUDA makes a CUDA context itself as long as this is None."""
    from hawser.dask import _workers

    if not _workers.started():
        return None
    import hawser.ucxx

    return hawser.ucxx


def init_once() -> None:
    """Start UCX for Dask, with the settings there are, if it has not been."""
    from hawser.dask import _workers

    _workers.start()
