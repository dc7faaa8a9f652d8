"""UCXX's functions: a global context, made at first use."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any

from hawser.ucp._libs import of_dask
from hawser.ucp.core import check_released, options_of_first, transports_of_program
from hawser.ucp.exceptions import UCXError as _UCPError

from ._lib import libucxx as ucx_api
from ._lib_async import ApplicationContext as ApplicationContext
from ._lib_async import Endpoint as Endpoint
from ._lib_async import Listener as Listener
from .exceptions import UCXError as UCXError

logger = logging.getLogger("ucx")

_ctx: ApplicationContext | None = None
_ctx_lock = threading.RLock()


def _get_ctx() -> ApplicationContext:
    global _ctx
    with _ctx_lock:
        if _ctx is None:
            _ctx = ApplicationContext()
        return _ctx


def init(
    options: dict[str, str] = {},  # noqa: B006
    env_takes_precedence: bool = False,
    progress_mode: str | None = None,
    enable_delayed_submission: bool | None = None,
    enable_python_future: bool | None = None,
    connect_timeout: float | None = None,
) -> None:
    """Open the global context. options: UCX's, without the prefix UCX_."""
    global _ctx
    with _ctx_lock:
        options = options_of_first(_ctx, options, env_takes_precedence)
        _ctx = ApplicationContext(
            options, progress_mode, enable_delayed_submission, enable_python_future, connect_timeout
        )


def reset() -> None:
    """Close the global context. Raises UCXError if endpoints or listeners still refer to it."""
    global _ctx
    if _ctx is None:
        return
    ref: weakref.ref[Any] = weakref.ref(_ctx)
    loops = [task.event_loop for task in _ctx.progress_tasks]
    _ctx = None
    try:
        check_released(ref, loops)
    except _UCPError as e:
        raise UCXError(str(e)) from None


def stop_notifier_thread() -> None:
    """There is none."""


def get_ucx_version() -> tuple[int, int, int]:
    """The version of UCX."""
    return ucx_api.get_ucx_version()


def progress() -> None:
    """Make progress until nothing is left to do."""
    worker = _get_ctx().worker
    worker.progress()
    worker.cancel_inflight_messages()


def get_config() -> dict[str, str]:
    """The options in use, also by Dask, or those that would be."""
    return of_dask.read_config() if _ctx is None else _ctx.config


def create_listener(
    callback_func: Callable[[Endpoint], Any],
    port: int | None = None,
    endpoint_error_handling: bool = True,
    connect_timeout: float = 5.0,
) -> Listener:
    """Listen on every IPv4 address; `callback_func` (also a coroutine function) gets each Endpoint."""
    return _get_ctx().create_listener(callback_func, port, endpoint_error_handling, connect_timeout)


async def create_endpoint(
    ip_address: str, port: int, endpoint_error_handling: bool = True, connect_timeout: float = 5.0
) -> Endpoint:
    """Connect to a listener. Raises TimeoutError after the connect timeout."""
    return await _get_ctx().create_endpoint(ip_address, port, endpoint_error_handling, connect_timeout)


async def create_endpoint_from_worker_address(address: Any, endpoint_error_handling: bool = True) -> Endpoint:
    """Connect to a worker by its address."""
    return await _get_ctx().create_endpoint_from_worker_address(address, endpoint_error_handling)


def get_ucp_context_info() -> str:
    """UCX's description of the context, or of Dask's."""
    info = of_dask.context_info() if _ctx is None else None
    return info or _get_ctx().ucp_context_info


def get_ucp_worker_info() -> str:
    """UCX's description of the worker."""
    return _get_ctx().ucp_worker_info


def get_active_transports() -> set[str]:
    """The transports that the context has for messages."""
    lines = re.findall(r"^#.*resource.*md.*dev.*flags.*$", get_ucp_context_info(), re.MULTILINE)
    return transports_of_program({line.split()[-1].split("/")[0] for line in lines}, get_config()["TLS"])


def continuous_ucx_progress(event_loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Have an event loop make progress."""
    _get_ctx().continuous_ucx_progress(event_loop=event_loop)


def get_ucp_worker() -> int:
    """The worker's handle."""
    return _get_ctx().ucp_worker


def get_ucxx_worker() -> int:
    """A number that names the worker."""
    return _get_ctx().ucxx_worker


def get_worker_address() -> Any:
    """The worker's address."""
    return _get_ctx().worker_address


def get_ucx_address_from_buffer(buffer: Any) -> Any:
    """An address that came as bytes."""
    return ucx_api.UCXAddress.create_from_buffer(buffer)


async def recv(buffer: Any, tag: Any) -> None:
    """Receive a message of any peer; `tag` is used as it is."""
    await _get_ctx().recv(buffer, tag=tag)


__all__ = [
    "continuous_ucx_progress",
    "create_endpoint",
    "create_endpoint_from_worker_address",
    "create_listener",
    "get_active_transports",
    "get_config",
    "get_ucp_context_info",
    "get_ucp_worker",
    "get_ucp_worker_info",
    "get_ucx_address_from_buffer",
    "get_ucx_version",
    "get_ucxx_worker",
    "get_worker_address",
    "init",
    "progress",
    "recv",
    "reset",
    "stop_notifier_thread",
]
