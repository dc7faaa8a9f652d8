"""Settings below `distributed-ucxx`, which Hawser reads before those below `distributed.comm.ucx`."""

from typing import Any

import dask

DEFAULTS = {
    "version": 1,
    "cuda-copy": None,
    "tcp": None,
    "nvlink": None,
    "infiniband": None,
    "rdmacm": None,
    "create-cuda-context": None,
    "multi-buffer": None,
    "environment": {},
    "rmm": {"pool-size": None},
}


def setup_config() -> None:
    """Make the keys known to Dask; those that are set are kept."""
    dask.config.update_defaults({"distributed-ucxx": DEFAULTS})


def get_ucx_config(key: str, default: Any = None) -> Any:
    """A key below `distributed-ucxx`, or else below `distributed.comm.ucx`."""
    return _first(f"distributed-ucxx.{key}", f"distributed.comm.ucx.{key}", default)


def get_rmm_config(key: str, default: Any = None) -> Any:
    """A key below `distributed-ucxx.rmm`, or else below `distributed.rmm`."""
    return _first(f"distributed-ucxx.rmm.{key}", f"distributed.rmm.{key}", default)


def _first(key: str, older: str, default: Any) -> Any:
    value = dask.config.get(key, None)
    return dask.config.get(older, default) if value is None else value
