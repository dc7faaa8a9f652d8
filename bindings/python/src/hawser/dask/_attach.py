"""What a scheduler or worker that listens at ucx:// gets from Hawser besides its connections."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from typing import Any

from distributed.comm.addressing import get_address_host

from ._descriptors import count_for
from ._setting import flag

log = logging.getLogger("hawser.dask")


def _server(comm_handler: Any) -> tuple[Any, set[str]]:
    """The server whose handler it is, and the names of Dask's classes that it is of."""
    server = getattr(comm_handler, "__self__", None)
    return server, {cls.__name__ for cls in type(server).__mro__ if cls.__module__.startswith("distributed.")}


def attach(comm_handler: Any) -> None:
    """Called when a listener has started: Dask's servers give it a method of theirs."""
    server, kind = _server(comm_handler)
    if "Server" in kind:
        count_for(server)
    if "Scheduler" in kind and flag("learn-bandwidths"):
        _learn(server)
    elif "Worker" in kind:
        _close_at_once(server)
        if getattr(server, "_dashboard", False) and importlib.util.find_spec("bokeh"):
            _add_page()


def scheduler_host(comm_handler: Any) -> str:
    """Of a worker's scheduler; empty for other servers."""
    server, kind = _server(comm_handler)
    return str(get_address_host(server.scheduler.address)) if "Worker" in kind else ""


def _close_at_once(worker: Any) -> None:
    """Dask's workers of this protocol wait 0.2 s as they close, for implementations that lose what was sent just
    before a goodbye. The name of Hawser's other scheme means the same transport."""
    if str(getattr(worker, "_protocol", "")).startswith("ucx"):
        worker._protocol = "hawser"


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
