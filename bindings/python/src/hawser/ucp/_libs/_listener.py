"""Listeners."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

from hawser import _constants as c
from hawser import _core
from hawser._check import one
from hawser._endpoint import Endpoint as _Endpoint

from ._endpoint import check_port
from ._object import UCXObject
from ._request import callback, posted
from ._worker import UCXWorker
from .exceptions import HawserError, log_errors


class _Peers:
    """What a listener's events come to."""

    def __init__(self, listener: UCXListener) -> None:
        self._listener = weakref.ref(listener)

    def _peer(self, _kind: int, id: int) -> None:
        listener = self._listener()
        if listener is None:
            _core.close(id)
            return
        worker = listener._worker
        worker._peers[id] = _Endpoint(worker._worker, id)
        with log_errors():
            listener._func(id, *listener._args, **listener._kwargs)

    def _event(self, *event: Any) -> None:
        """Closed: nothing is left to do."""


class UCXListener(UCXObject):
    """Calls `cb_func(conn_request, *cb_args, **cb_kwargs)` for each peer; see create_from_conn_request()."""

    def __init__(
        self,
        worker: UCXWorker,
        port: int,
        cb_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> None:
        self._closed = True
        one("worker", worker, UCXWorker)._assert_initialized()
        self._worker = worker
        self._func, self._args, self._kwargs = callback(cb_func, cb_args, cb_kwargs)
        self._peers = _Peers(self)
        port = check_port(port)
        flags = c.ListenerFlag.RAW if worker.of_ucxpy else 0
        self.handle: int = posted(lambda: _core.listen(worker._worker, None, port, flags, 0, 0), "ucp_listener_create")
        worker._worker._objects[self.handle] = self._peers
        super().__init__()
        worker.add_child(self)
        info = _core.listener_query(self.handle)
        self.port: int = info["port"]
        self.ip: str = info["address"]

    def _finalize(self) -> None:
        with contextlib.suppress(HawserError):
            _core.close(self.handle)
