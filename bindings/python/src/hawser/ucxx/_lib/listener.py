"""UCXX's listeners."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hawser._check import function
from hawser.ucp._libs import ucx_api

from .converted import converted
from .endpoint import UCXEndpoint
from .worker import UCXWorker


class UCXListener(ucx_api.UCXListener):
    """Calls `cb_func(conn_request, *cb_args, **cb_kwargs)` for each peer, or with an endpoint instead."""

    enable_python_future = False

    @classmethod
    @converted
    def create(
        cls,
        worker: UCXWorker,
        port: int,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
        deliver_endpoint: bool = False,
        endpoint_error_handling: bool = True,
    ) -> UCXListener:
        """Listen. deliver_endpoint: the callback gets a UCXEndpoint."""
        if deliver_endpoint:
            cb_func = functools.partial(_deliver, worker, bool(endpoint_error_handling), function("cb_func", cb_func))
        return cls(worker, port, cb_func, cb_args, cb_kwargs)

    @property
    def ucxx_ptr(self) -> int:
        """A number that names it."""
        return id(self)

    def create_endpoint_from_conn_request(self, conn_request: int, endpoint_error_handling: bool = True) -> UCXEndpoint:
        """Take a connection that the callback told of."""
        return _taken(self._worker, conn_request, endpoint_error_handling)  # type: ignore[arg-type]


def _taken(worker: UCXWorker, conn_request: int, endpoint_error_handling: bool) -> UCXEndpoint:
    handles = bool(endpoint_error_handling)
    return UCXEndpoint(worker, worker._take_peer(conn_request), handles)


def _deliver(
    worker: UCXWorker,
    endpoint_error_handling: bool,
    cb_func: Callable[..., None],
    conn_request: int,
    *args: Any,
    **kwargs: Any,
) -> None:
    cb_func(_taken(worker, conn_request, endpoint_error_handling), *args, **kwargs)
