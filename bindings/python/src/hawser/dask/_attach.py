"""What a scheduler or worker that listens at ucx:// gets from Hawser besides its connections."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from typing import Any

from ._config import setting

log = logging.getLogger("hawser.dask")


def attach(comm_handler: Any) -> None:
    """Called when a listener has started: Dask's servers give it a method of theirs."""
    server = getattr(comm_handler, "__self__", None)
    kind = {cls.__name__ for cls in type(server).__mro__ if cls.__module__.startswith("distributed.")}
    if "Scheduler" in kind and setting("learn-bandwidths"):
        _learn(server)
    elif "Worker" in kind and getattr(server, "_dashboard", False) and importlib.util.find_spec("bokeh"):
        _add_page()


def _learn(scheduler: Any) -> None:
    from ._learn import PairBandwidths

    if PairBandwidths.name not in scheduler.plugins:
        plugin = PairBandwidths()
        plugin.attach(scheduler)
        scheduler.add_plugin(plugin)


def _add_page() -> None:
    """The worker makes its pages from this table once it listens."""
    try:
        pages = importlib.import_module("distributed.dashboard.worker").applications
    except (ImportError, AttributeError):
        log.debug("no page of transfers in the worker's dashboard", exc_info=True)
        return
    from ._page import transfers_doc

    pages["/hawser"] = transfers_doc
