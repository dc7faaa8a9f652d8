"""What the module's functions work with: a context, its worker and their progress."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import os
import weakref
from collections.abc import Callable
from typing import Any

from hawser import _core
from hawser._check import function, one
from hawser._connect import connect as _connect
from hawser._unique import Unique

from . import comm
from ._endpoint import Endpoint
from ._handshake import CtrlMsg, agree_on_tags
from ._libs import ucx_api
from ._libs._request import tag_number, view_of
from ._libs.arr import Array
from ._libs.exceptions import ErrorCode, HawserError, check_short, translate
from ._libs.utils import nvtx_annotate
from .continuous_ucx_progress import BlockingMode, NonBlockingMode
from .utils import get_event_loop

logger = logging.getLogger("ucx")
_CONNECTING = 32  # connections under way at once in a loop


async def _introduce(ctx: ApplicationContext, ep: ucx_api.UCXEndpoint, first: str) -> Endpoint:
    tags = await agree_on_tags(ep, ctx.connect_timeout, first if ep.of_ucxpy else None)
    endpoint = Endpoint(ep, ctx, tags)
    CtrlMsg.setup_ctrl_recv(endpoint)
    return endpoint


async def _listener_handler_coroutine(
    conn_request: int, ctx: ApplicationContext, func: Callable[[Endpoint], Any], endpoint_error_handling: bool
) -> None:
    ep = ucx_api.UCXEndpoint.create_from_conn_request(ctx.worker, conn_request, endpoint_error_handling)
    endpoint = await _introduce(ctx, ep, "send")
    endpoint._log_made("_listener_handler() server")
    del ctx, ep
    if inspect.iscoroutinefunction(func):
        await func(endpoint)
    else:
        func(endpoint)


def _listener_handler(
    conn_request: int,
    event_loop: asyncio.AbstractEventLoop,
    callback_func: Callable[[Endpoint], Any],
    ctx: weakref.ref[ApplicationContext],
    endpoint_error_handling: bool,
) -> None:
    def serve(loop: asyncio.AbstractEventLoop) -> None:
        context = ctx()
        if context is None:
            _core.close(conn_request)
            return
        coroutine = _listener_handler_coroutine(conn_request, context, callback_func, endpoint_error_handling)
        # Loops hold tasks weakly, and so may what a task waits for.
        task = loop.create_task(coroutine)
        context._handlers.add(task)
        task.add_done_callback(context._handlers.discard)

    if not serve_in(event_loop, serve):
        _core.close(conn_request)


def serve_in(event_loop: asyncio.AbstractEventLoop, serve: Callable[[asyncio.AbstractEventLoop], None]) -> bool:
    """Call serve(loop) for a peer that came, in the loop of its listener, which may run on another thread than the one
    that met the peer; while it does not run, in the one that runs here. False: there is none any more."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is None or (running is not event_loop and event_loop.is_running()):
        try:
            event_loop.call_soon_threadsafe(serve, event_loop)
        except RuntimeError:
            return False
    else:
        serve(running)
    return True


def _epoll_fd_finalizer(fd: int, progress_tasks: list[Any]) -> None:
    progress_tasks.clear()
    os.close(fd)


def _close_all(worker: ucx_api.UCXWorker, context: ucx_api.UCXContext) -> None:
    worker.close()
    context.close()


class _Context(ucx_api.UCXContext):
    """The asyncio API has no remote memory: no peer gets at any."""

    _plain_rma = False


def _speaks_ucxpy(wire: str | None) -> bool:
    """Whether peers may be UCX-Py itself; where the program does not say, $HAWSER_UCP_WIRE does."""
    wire = wire or os.environ.get("HAWSER_UCP_WIRE") or "hawser"
    if wire not in ("hawser", "ucx-py"):
        raise ValueError(f'`wire` must be "hawser" or "ucx-py", not {wire!r}')
    return wire == "ucx-py"


def _seconds(connect_timeout: float | None) -> float:
    """The connect timeout; where the program gives none, $UCXPY_CONNECT_TIMEOUT, or else 5 s, is it."""
    given = os.environ.get("UCXPY_CONNECT_TIMEOUT", 5) if connect_timeout is None else connect_timeout
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        seconds = float(given)
        if not math.isnan(seconds):
            return seconds
    raise ValueError(f"the connect timeout (UCXPY_CONNECT_TIMEOUT) must be a number of seconds, not {given!r}")


class ApplicationContext(Unique):
    """A context with its one worker. The module's functions use a global one."""

    def __init__(
        self,
        config_dict: dict[str, str] = {},  # noqa: B006
        blocking_progress_mode: bool | None = None,
        connect_timeout: float | None = None,
        wire: str | None = None,
    ) -> None:
        self.progress_tasks: list[Any] = []
        self._handlers: set[asyncio.Task[None]] = set()  # of listeners, one for each peer
        of_ucxpy = _speaks_ucxpy(wire)
        self.connect_timeout = _seconds(connect_timeout)
        self._open(config_dict)
        self.worker._loop_cancels = True
        self.worker.of_ucxpy = of_ucxpy
        if blocking_progress_mode is None:
            blocking_progress_mode = "UCXPY_NON_BLOCKING_MODE" not in os.environ
        self.blocking_progress_mode = blocking_progress_mode
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )
        weakref.finalize(self, _close_all, self.worker, self.context)
        if blocking_progress_mode:
            self.epoll_fd = self.worker.init_blocking_progress_mode()
            weakref.finalize(self, _epoll_fd_finalizer, self.epoll_fd, self.progress_tasks)
        self.continuous_ucx_progress()

    def _open(self, config_dict: dict[str, str]) -> None:
        self.context: Any = _Context(config_dict)
        self.worker: Any = ucx_api.UCXWorker(self.context)

    def create_listener(
        self,
        callback_func: Callable[[Endpoint], Any],
        port: int | None = 0,
        endpoint_error_handling: bool = True,
    ) -> Listener:
        """Listen; see the module's create_listener()."""
        function("callback_func", callback_func)
        port = ucx_api.check_port(port)
        endpoint_error_handling = bool(endpoint_error_handling)
        self.continuous_ucx_progress()
        logger.info("create_listener() - Start listening on port %d", port)
        return Listener(
            ucx_api.UCXListener(
                worker=self.worker,
                port=port,
                cb_func=_listener_handler,
                cb_args=(
                    get_event_loop(),
                    callback_func,
                    weakref.ref(self),
                    endpoint_error_handling,
                ),
            ),
            self,
        )

    async def create_endpoint(self, ip_address: str, port: int, endpoint_error_handling: bool = True) -> Endpoint:
        """Connect; see the module's create_endpoint()."""
        ucx_api.check_port(port)
        endpoint_error_handling = bool(endpoint_error_handling)
        self.continuous_ucx_progress()
        async with self._turn():
            return await self._connect(ip_address, port, endpoint_error_handling)

    def _turn(self) -> asyncio.Semaphore:
        """Many connections at once would wait for each other longer than the connect timeout."""
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = asyncio.Semaphore(_CONNECTING)
        return turn

    async def _connected(self, ip_address: str, port: int, timeout: float) -> Any:
        try:
            raw = self.worker.of_ucxpy
            return await _connect(ip_address, port, worker=self.worker._worker, timeout=max(timeout, 1e-3), raw=raw)
        except HawserError as e:
            if e.code == ErrorCode.TIMED_OUT:
                raise TimeoutError from e
            raise ucx_api.unresolved(e) or translate(e, "create_endpoint") from e

    async def _connect(self, ip_address: str, port: int, endpoint_error_handling: bool) -> Endpoint:
        connected = await self._connected(ip_address, port, self.connect_timeout)
        ep = ucx_api.UCXEndpoint(self.worker, connected, endpoint_error_handling)
        endpoint = await _introduce(self, ep, "recv")
        endpoint._log_made("create_endpoint() client")
        return endpoint

    async def create_endpoint_from_worker_address(self, address: Any, endpoint_error_handling: bool = True) -> Endpoint:
        """Connect to a worker by its address; there is no handshake, so no tags."""
        self.continuous_ucx_progress()
        ep = ucx_api.UCXEndpoint.create_from_worker_address(self.worker, address, endpoint_error_handling)
        endpoint = Endpoint(ep, self, None)
        endpoint._log_made("create_endpoint_from_worker_address() client")
        return endpoint

    def continuous_ucx_progress(self, event_loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Have an event loop make progress; again for the same loop does nothing."""
        if event_loop is None:
            try:
                event_loop = asyncio.get_running_loop()
            except RuntimeError:
                return  # the first await in a loop binds it
        one("event_loop", event_loop, asyncio.AbstractEventLoop)  # type: ignore[type-abstract]
        self.progress_tasks[:] = [t for t in self.progress_tasks if not t.event_loop.is_closed()]
        if any(task.event_loop is event_loop for task in self.progress_tasks):
            return
        mode = BlockingMode if self.blocking_progress_mode else NonBlockingMode
        self.progress_tasks.append(mode(self.worker, event_loop))

    def get_ucp_worker(self) -> int:
        """The worker's handle."""
        return self.worker.handle

    def get_config(self) -> dict[str, str]:
        """The options, without the prefix UCX_."""
        return self.context.get_config()

    def ucp_context_info(self) -> str:
        """UCX's description of the context."""
        return self.context.info()

    def ucp_worker_info(self) -> str:
        """UCX's description of the worker."""
        return self.worker.info()

    def fence(self) -> Any:
        """Operations posted later take effect after those posted before."""
        return self.worker.fence()

    async def flush(self) -> None:
        """Complete everything posted before."""
        await comm.flush_worker(self.worker)

    def get_worker_address(self) -> Any:
        """The worker's address, for create_endpoint_from_worker_address()."""
        return self.worker.get_address()

    def register_am_allocator(self, allocator: Callable[[int], Any], allocator_type: str) -> None:
        """See the module's register_am_allocator()."""
        kinds = {"host": ucx_api.AllocatorType.HOST, "cuda": ucx_api.AllocatorType.CUDA}
        kind = kinds.get(one("allocator_type", allocator_type, str), ucx_api.AllocatorType.UNSUPPORTED)
        self.worker.register_am_allocator(allocator, kind)

    @nvtx_annotate("UCXPY_WORKER_RECV", color="red", domain="ucxpy")
    async def recv(self, buffer: Any, tag: int) -> bool:
        """Receive a message of any peer; `tag` is used as it is."""
        tag = tag_number(tag)
        wanted = Array(buffer) if not isinstance(buffer, Array) else buffer
        name = f"[Worker Recv #000] tag: {tag:#x}, nbytes: {wanted.nbytes}, type: {type(wanted.obj)}"
        try:
            got = await self.worker._worker.recv(view_of(wanted, wanted.nbytes, True), tag)
        except HawserError as e:
            raise translate(e, name) from e
        check_short(name, got, wanted.nbytes)
        return True


class Listener(Unique):
    """Listens until it is closed or nothing refers to it; the accepted endpoints live on."""

    def __init__(self, backend: ucx_api.UCXListener, ctx: ApplicationContext | None = None) -> None:
        if not one("backend", backend, ucx_api.UCXListener).initialized:
            raise ValueError("backend: the listener is closed")
        self._b = backend
        self._ctx = ctx

    def closed(self) -> bool:
        """Whether it is closed."""
        return not self._b.initialized

    @property
    def ip(self) -> str:
        """The address it listens on."""
        return self._b.ip

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._b.port

    def close(self) -> None:
        """Stop listening."""
        self._b.close()
        self._ctx = None
