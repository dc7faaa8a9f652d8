"""The asyncio API of UCX-Py."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from hawser import _check

from . import comm as comm  # programs find this, and what else is imported under its own name, here too
from ._application import ApplicationContext as ApplicationContext
from ._application import Listener as Listener
from ._application import (  # noqa: F401
    _epoll_fd_finalizer,
    _listener_handler,
    _listener_handler_coroutine,
    serve_in,
)
from ._endpoint import Endpoint as Endpoint
from ._handshake import CtrlMsg as CtrlMsg
from ._handshake import agree_on_tags  # noqa: F401
from ._handshake import exchange_peer_info as exchange_peer_info
from ._libs import of_dask
from ._libs import ucx_api as ucx_api
from ._libs.arr import Array as Array
from ._libs.ucx_api import is_am_supported as is_am_supported
from ._libs.utils import nvtx_annotate as nvtx_annotate
from .continuous_ucx_progress import BlockingMode as BlockingMode
from .continuous_ucx_progress import NonBlockingMode as NonBlockingMode
from .exceptions import UCXCanceled as UCXCanceled
from .exceptions import UCXCloseError as UCXCloseError
from .exceptions import UCXError as UCXError
from .utils import get_event_loop as get_event_loop
from .utils import get_ucxpy_logger as get_ucxpy_logger
from .utils import hash64bits as hash64bits

logger = logging.getLogger("ucx")

# The context that the module's functions use; made at first use.
_ctx: ApplicationContext | None = None
_ctx_lock = threading.RLock()
_LET_END_SECONDS = 1.0


def _get_ctx() -> ApplicationContext:
    global _ctx
    with _ctx_lock:
        if _ctx is None:
            _ctx = ApplicationContext()
        return _ctx


def options_of_first(context: object, options: dict[str, str], env_takes_precedence: bool) -> dict[str, str]:
    """Those to open the global context with, unless there is one; the environment may have the last word."""
    if context is not None:
        raise RuntimeError(
            "UCX is already initiated. Call reset() and init() in order to re-initate UCX with new options."
        )
    options = dict(_check.mapping("options", options))
    for key in options if env_takes_precedence else ():
        env = f"UCX_{key}"
        if env in os.environ:
            logger.debug("Ignoring option %s=%s; using environment %s=%s", key, options[key], env, os.environ[env])
            options[key] = os.environ[env]
    return options


def init(
    options: dict[str, str] = {},  # noqa: B006
    env_takes_precedence: bool = False,
    blocking_progress_mode: bool | None = None,
    connect_timeout: float | None = None,
    wire: str | None = None,
) -> None:
    """Open the global context. options: UCX's, without the prefix UCX_.

    wire: "hawser", or "ucx-py" to connect to programs that run UCX-Py itself and to let them connect, with the same
    UCX on both sides; by default $HAWSER_UCP_WIRE, else "hawser".
    """
    global _ctx
    with _ctx_lock:
        options = options_of_first(_ctx, options, env_takes_precedence)
        context = _ctx = ApplicationContext(options, blocking_progress_mode, connect_timeout, wire)
    logger.info("UCP initiated using config:")
    for key, value in context.get_config().items():
        if key in options or f"UCX_{key}" in os.environ:
            logger.info("  %s: %s", key, value)


def reset() -> None:
    """Close the global context. Raises UCXError if endpoints or listeners still refer to it."""
    global _ctx
    if _ctx is None:
        return
    ref = weakref.ref(_ctx)
    loops = [task.event_loop for task in _ctx.progress_tasks]
    _ctx = None
    check_released(ref, loops)


def check_released(ref: weakref.ref[ApplicationContext], loops: list[asyncio.AbstractEventLoop]) -> None:
    """Raise UCXError if something still refers to a context that is to be closed."""
    gc.collect()
    _let_tasks_end(ref, loops)
    context = ref()
    if context is not None:
        text = (
            "Trying to reset UCX but not all Endpoints and/or Listeners are closed(). The following objects "
            "are still referencing ApplicationContext:"
        )
        for referrer in gc.get_referrers(context):
            text += f"\n  {str(referrer)[:200]}"
        raise UCXError(text)


def _let_tasks_end(context: weakref.ref[ApplicationContext], loops: list[asyncio.AbstractEventLoop]) -> None:
    """Run loops that stand still until nothing holds the context, for a moment.

    A receive can return before the task of the other end, in this process, has seen that its send
    is done: it would hold its endpoint only because its loop was stopped.
    """
    end = time.monotonic() + _LET_END_SECONDS
    with contextlib.suppress(RuntimeError):  # a loop runs in this thread
        while context() is not None and loops and time.monotonic() < end:
            loops = [loop for loop in loops if not loop.is_closed() and not loop.is_running()]
            for loop in loops:
                loop.run_until_complete(asyncio.sleep(1e-3))


def get_ucx_version() -> tuple[int, int, int]:
    """The version of UCX."""
    return ucx_api.get_ucx_version()


def get_config() -> dict[str, str]:
    """The options in use, also by Dask, or those that would be."""
    return of_dask.read_config() if _ctx is None else _ctx.get_config()


def progress() -> None:
    """Make progress until nothing is left to do."""
    worker = _get_ctx().worker
    worker.progress()
    worker.cancel_inflight_messages()


def continuous_ucx_progress(event_loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Have an event loop make progress."""
    _get_ctx().continuous_ucx_progress(event_loop=event_loop)


def create_listener(
    callback_func: Callable[[Endpoint], Any],
    port: int | None = None,
    endpoint_error_handling: bool = True,
) -> Listener:
    """Listen on every IPv4 address; `callback_func` (also a coroutine function) gets each Endpoint."""
    return _get_ctx().create_listener(callback_func, port, endpoint_error_handling)


async def create_endpoint(ip_address: str, port: int, endpoint_error_handling: bool = True) -> Endpoint:
    """Connect to a listener. Raises asyncio.TimeoutError after the connect timeout."""
    return await _get_ctx().create_endpoint(ip_address, port, endpoint_error_handling)


async def create_endpoint_from_worker_address(address: Any, endpoint_error_handling: bool = True) -> Endpoint:
    """Connect to a worker by its address."""
    return await _get_ctx().create_endpoint_from_worker_address(address, endpoint_error_handling)


def get_ucp_worker() -> int:
    """The worker's handle."""
    return _get_ctx().get_ucp_worker()


def get_worker_address() -> Any:
    """The worker's address."""
    return _get_ctx().get_worker_address()


def get_ucx_address_from_buffer(buffer: Any) -> Any:
    """An address that came as bytes."""
    return ucx_api.UCXAddress.from_buffer(buffer)


async def recv(buffer: Any, tag: int) -> bool:
    """Receive a message of any peer; `tag` is used as it is."""
    return await _get_ctx().recv(buffer, tag=tag)


def get_ucp_context_info() -> str:
    """UCX's description of the context, or of Dask's."""
    info = of_dask.context_info() if _ctx is None else None
    return info or _get_ctx().ucp_context_info()


def get_ucp_worker_info() -> str:
    """UCX's description of the worker."""
    return _get_ctx().ucp_worker_info()


def transports_of_program(found: set[str], tls: str) -> set[str]:
    """The transports that carry what the program sends: connections begin by TCP also where UCX_TLS, `tls`, leaves it
    out, and UCX's context has it then."""
    excludes = tls.startswith("^")
    names = {name.partition(":")[0].lstrip("\\") for name in tls.removeprefix("^").split(",")}
    return found if excludes != bool({"all", "tcp"} & names) else found - {"tcp"}


def get_active_transports() -> set[str]:
    """The transports that the context has for messages."""
    found = set()
    for line in get_ucp_context_info().splitlines():
        match = re.search(r"resource.*md.*dev.*flags.* (\S+)/\S+ *$|resource\s+\d+\s*:.*?(\w+)/\S+", line)
        if match is not None:
            found.add(match[1] or match[2])
    return transports_of_program(found, get_config()["TLS"])


def register_am_allocator(allocator: Callable[[int], Any], allocator_type: str) -> None:
    """Have active messages received into what `allocator(bytes)` gives; type "host" or "cuda"."""
    _get_ctx().register_am_allocator(allocator, allocator_type)


async def flush() -> None:
    """Complete everything posted before."""
    if _ctx is None:
        await asyncio.sleep(0)
        return
    await _ctx.flush()


def fence() -> Any:
    """Operations posted later take effect after those posted before."""
    return None if _ctx is None else _ctx.fence()
