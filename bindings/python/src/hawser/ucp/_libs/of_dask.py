"""The context of Dask's `ucx://` here: for users of UCX-Py and UCXX the global one, until they make theirs."""

from __future__ import annotations

import sys

from hawser import Context

from . import config


def _running() -> tuple[Context, dict[str, str]] | None:
    # Dask is not loaded for this.
    workers = sys.modules.get("hawser.dask._workers")
    return None if workers is None else workers.running()


def read_config() -> dict[str, str]:
    """The options with which UCX runs for Dask, or those that a context would have now."""
    running = _running()
    return config.read(None if running is None else running[1])


def context_info() -> str | None:
    """UCX's description of Dask's context; None if there is none."""
    running = _running()
    return None if running is None else running[0].info()
