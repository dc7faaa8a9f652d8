"""Listeners of UCXX's asyncio API."""

from __future__ import annotations

import asyncio
import inspect
import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawser._unique import Unique
from hawser.ucp._application import serve_in
from hawser.ucp._handshake import agree_on_tags

from .._lib.libucxx import UCXEndpoint, UCXListener
from .endpoint import Endpoint

if TYPE_CHECKING:
    from .application_context import ApplicationContext

logger = logging.getLogger("ucx")


class _Handlers:
    """The tasks of a listener's clients."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def warn(self) -> None:
        if self.tasks:
            logger.warning(
                "Listener object is being destroyed, but %d client handler(s) is(are) still alive. This usually "
                "indicates the Listener was prematurely destroyed.",
                len(self.tasks),
            )


class Listener(Unique):
    """Listens until it is closed or nothing refers to it; the accepted endpoints live on."""

    def __init__(self, listener: UCXListener, handlers: _Handlers, ctx: ApplicationContext) -> None:
        self._listener: UCXListener | None = listener
        self._handlers = handlers
        self._ctx: ApplicationContext | None = ctx
        weakref.finalize(self, _Handlers.warn, handlers).atexit = False

    def _open(self) -> UCXListener:
        if self._listener is None:
            raise RuntimeError("The listener is closed")
        return self._listener

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._listener is None

    @property
    def ip(self) -> str:
        """The address it listens on."""
        return self._open().ip

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._open().port

    @property
    def active_clients(self) -> int:
        """How many of its clients are being served."""
        return len(self._handlers.tasks)

    async def _wait_for_active_clients(self, progress: Callable[[], None] | None = None) -> None:
        while self._handlers.tasks:
            await asyncio.wait(self._handlers.tasks)
            await asyncio.sleep(0)

    def close(self) -> None:
        """Stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()
        self._ctx = None


def accept(
    ep: UCXEndpoint,
    loop: asyncio.AbstractEventLoop,
    func: Callable[[Endpoint], Any],
    ctx: weakref.ref[ApplicationContext],
    connect_timeout: float,
    handlers: _Handlers,
) -> None:
    """A client came: serve it in a task of its own."""

    def start(loop: asyncio.AbstractEventLoop) -> None:
        task = loop.create_task(_serve(ep, ctx, func, connect_timeout))
        handlers.tasks.add(task)
        task.add_done_callback(handlers.tasks.discard)

    if not serve_in(loop, start):
        ep.close_soon()


async def _serve(
    ep: UCXEndpoint, ref: weakref.ref[ApplicationContext], func: Callable[[Endpoint], Any], connect_timeout: float
) -> None:
    ctx = ref()
    if ctx is None:
        return
    try:
        endpoint = Endpoint(ep, ctx, await agree_on_tags(ep, connect_timeout))
        endpoint._log_made("_listener_handler() server")
        del ctx, ep
        if inspect.iscoroutinefunction(func):
            await func(endpoint)
        else:
            func(endpoint)
    except Exception:
        logger.exception("Uncaught listener callback error")
