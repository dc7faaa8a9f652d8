"""The context of UCXX's asyncio API.

Its progress modes, delayed submission and Python futures are settings of an engine that this one
does without: the loop is woken by the worker's descriptor, and completions wake their tasks. They
are checked and kept, and change nothing.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable
from typing import Any

from hawser._check import function, seconds
from hawser.ucp import _application as _ucp
from hawser.ucp._handshake import agree_on_tags
from hawser.ucp._libs.ucx_api import check_port

from .._lib.libucxx import TagProbeResult, UCXContext, UCXEndpoint, UCXListener, UCXWorker
from ..exceptions import convert
from .endpoint import Endpoint, _array, as_tag
from .listener import Listener, _Handlers, accept
from .utils import get_event_loop

logger = logging.getLogger("ucx")

_MODES = ("blocking", "polling", "thread", "thread-polling")


def _flag(value: bool | None, name: str, default: bool) -> bool:
    if value is not None:
        return value
    return os.environ[name] != "0" if name in os.environ else default


class ApplicationContext(_ucp.ApplicationContext):
    """A context with its one worker. The module's functions use a global one."""

    def __init__(
        self,
        config_dict: dict[str, str] = {},  # noqa: B006
        progress_mode: str | None = None,
        enable_delayed_submission: bool | None = None,
        enable_python_future: bool | None = None,
        connect_timeout: float | None = None,
    ) -> None:
        self._mode = os.environ.get("UCXPY_PROGRESS_MODE", "thread") if progress_mode is None else progress_mode
        if self._mode not in _MODES:
            raise ValueError(
                f"Unknown progress mode '{progress_mode}', valid modes are: 'blocking', 'polling', 'thread' or "
                "'thread-polling'"
            )
        threaded = self._mode.startswith("thread")
        self._delayed = _flag(enable_delayed_submission, "UCXPY_ENABLE_DELAYED_SUBMISSION", threaded)
        if self._delayed and not threaded:
            raise ValueError(
                f"Delayed submission requested, but '{self._mode}' does not support it, 'thread' or "
                "'thread-polling' progress mode required."
            )
        self._futures = _flag(enable_python_future, "UCXPY_ENABLE_PYTHON_FUTURE", False)
        if self._futures and not threaded:
            logger.warning("Notifier thread requested, but '%s' does not support it.", self._mode)
            self._futures = False
        super().__init__(config_dict, False, connect_timeout, "hawser")
        logger.info("Starting progress in '%s' mode", self._mode)

    def _open(self, config_dict: dict[str, str]) -> None:
        self.context = UCXContext(config_dict)
        self.worker = UCXWorker(self.context, self._delayed, self._futures)

    # ---- Settings ----

    @property
    def progress_mode(self) -> str:
        """How it was asked to make progress."""
        return self._mode

    @property
    def enable_delayed_submission(self) -> bool:
        """Whether delayed submission was asked for."""
        return self._delayed

    @property
    def enable_python_future(self) -> bool:
        """Whether Python futures were asked for."""
        return self._futures

    @property
    def config(self) -> dict[str, str]:
        """The options, without the prefix UCX_."""
        return self.get_config()

    @property
    def ucp_context_info(self) -> str:  # type: ignore[override]
        """UCX's description of the context."""
        return str(self.context.info)

    @property
    def ucp_worker_info(self) -> str:  # type: ignore[override]
        """UCX's description of the worker."""
        return str(self.worker.info)

    @property
    def ucp_worker(self) -> int:
        """The worker's handle."""
        return self.get_ucp_worker()

    @property
    def ucxx_worker(self) -> int:
        """A number that names the worker."""
        return int(self.worker.ucxx_ptr)

    @property
    def worker_address(self) -> Any:
        """The worker's address."""
        return self.worker.address

    def start_notifier_thread(self) -> None:
        """There is none."""

    def stop_notifier_thread(self) -> None:
        """There is none."""

    def clear_progress_tasks(self) -> None:
        """Forget which loops make progress; the next use in one binds it again."""
        self.progress_tasks.clear()

    # ---- Connecting ----

    def create_listener(  # type: ignore[override]
        self,
        callback_func: Callable[[Endpoint], Any],
        port: int | None = 0,
        endpoint_error_handling: bool = True,
        connect_timeout: float = 5.0,
    ) -> Listener:
        """Listen; see the module's create_listener()."""
        function("callback_func", callback_func)
        port = check_port(port)
        connect_timeout = seconds("connect_timeout", connect_timeout)
        self.continuous_ucx_progress()
        logger.info("create_listener() - Start listening on port %d", port)
        handlers = _Handlers()
        listener = UCXListener.create(
            worker=self.worker,
            port=port,
            cb_func=accept,
            cb_args=(get_event_loop(), callback_func, weakref.ref(self), connect_timeout, handlers),
            deliver_endpoint=True,
            endpoint_error_handling=endpoint_error_handling,
        )
        return Listener(listener, handlers, self)

    async def create_endpoint(
        self, ip_address: str, port: int, endpoint_error_handling: bool = True, connect_timeout: float = 5.0
    ) -> Endpoint:
        """Connect; see the module's create_endpoint()."""
        check_port(port)
        endpoint_error_handling = bool(endpoint_error_handling)
        connect_timeout = seconds("connect_timeout", connect_timeout)
        self.continuous_ucx_progress()
        try:
            async with self._turn():
                connected = await self._connected(ip_address, port, connect_timeout)
                ep = UCXEndpoint(self.worker, connected, endpoint_error_handling)
                endpoint = Endpoint(ep, self, await agree_on_tags(ep, connect_timeout))
            endpoint._log_made("create_endpoint() client")
            return endpoint
        except Exception as e:
            raise convert(e) from e

    async def create_endpoint_from_worker_address(self, address: Any, endpoint_error_handling: bool = True) -> Endpoint:
        """Connect to a worker by its address; it has no tags of its own."""
        self.continuous_ucx_progress()
        ep = UCXEndpoint.create_from_worker_address(self.worker, address, endpoint_error_handling)
        endpoint = Endpoint(ep, self)
        endpoint._log_made("create_endpoint_from_worker_address() client")
        return endpoint

    # ---- Messages of any peer ----

    def tag_probe(self, tag: Any, remove: bool = False) -> TagProbeResult:
        """Look for a message of any peer."""
        return self.worker.tag_probe(as_tag(tag), remove=remove)

    async def recv(self, buffer: Any, tag: Any) -> None:
        """Receive a message of any peer; `tag` is used as it is."""
        await self.worker._tag_received(_array(buffer), as_tag(tag))

    async def recv_with_handle(self, buffer: Any, probe_result: TagProbeResult) -> None:
        """Receive a message that tag_probe() removed."""
        await self.worker.tag_recv_with_handle(_array(buffer), probe_result).wait()
