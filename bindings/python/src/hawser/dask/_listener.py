"""Waiting for peers of Dask."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.core import CommClosedError
from distributed.comm.utils import ensure_concrete_host
from distributed.utils import ensure_ip

import hawser

from ._address import address_of, ip_towards
from ._attach import attach, scheduler_host
from ._comm import HawserComm
from ._config import close_timeout, refuse_encryption
from ._refused import Refusals
from ._workers import loop_worker

try:
    from distributed.comm.core import BaseListener
except ImportError:  # before 2023.6.1
    from distributed.comm.core import Listener as BaseListener  # type: ignore[assignment]

log = logging.getLogger("hawser.dask")


class HawserListener(BaseListener):
    """Listens at `host:port`; no host is every address, port 0 a free one."""

    def __init__(
        self,
        address: str,
        comm_handler: Callable[[HawserComm], Awaitable[None]] | None = None,
        deserialize: bool = True,
        allow_offload: bool = True,
        default_host: str | None = None,
        default_port: int = 0,
        prefix: str = "hawser://",
        **connection_args: Any,
    ) -> None:
        super().__init__()
        refuse_encryption(prefix + address, connection_args)
        self.prefix = prefix
        self.ip, self.port = parse_host_port(address, default_port)
        self.default_host = default_host
        self.comm_handler = comm_handler
        self.deserialize = deserialize
        self.allow_offload = allow_offload
        self._listener: Any = None
        self._refusals: Refusals | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Bind. Raises OSError, with errno EADDRINUSE where that is the reason."""
        self._loop = asyncio.get_running_loop()
        host = await self._choose_host()
        try:
            self._listener = hawser.listen(
                self.port, host, worker=loop_worker(host), on_peer=self._arrived, close_timeout=close_timeout()
            )
        except hawser.AddressInUseError as e:
            raise OSError(errno.EADDRINUSE, f"{self.prefix}{unparse_host_port(self.ip, self.port)}: {e}") from e
        except hawser.HawserError as e:
            raise OSError(f"{self.prefix}{unparse_host_port(self.ip, self.port)}: {e}") from e
        self.port = self._listener.port
        self._host = host or "0.0.0.0"
        self._refusals = Refusals(self._listener, self.listen_address, self._loop)
        attach(self.comm_handler)

    async def _choose_host(self) -> str | None:
        """None is every IPv4 address. A worker that listens on every address does so on IPv6's where its scheduler has
        an IPv6 address, as over tcp, which serves both; others reach it through the interface that leads there."""
        host = ensure_ip(self.ip) if self.ip else None
        scheduler = scheduler_host(self.comm_handler)
        if host not in (None, "0.0.0.0", "::") or not scheduler:
            return host
        scheduler = await address_of(scheduler)
        ipv6 = ":" in scheduler
        if host is None and ipv6:
            host = "::"
        if self.default_host is None and ipv6 == (host == "::"):
            self.default_host = ip_towards(scheduler)
        return host

    def stop(self) -> None:
        """Take no more peers; those that are connected stay."""
        listener, self._listener = self._listener, None
        refusals, self._refusals = self._refusals, None
        if refusals is not None:
            refusals.say()
        if listener is not None:
            listener.close()

    def _arrived(self, endpoint: hawser.Endpoint) -> None:
        if self._listener is None:
            endpoint.abort()
            return
        try:
            comm = HawserComm(endpoint, self.prefix, self.deserialize)
        except (hawser.HawserError, CommClosedError) as e:
            log.debug("a peer left before it was accepted: %s", e)
            endpoint.abort()
            return
        comm.allow_offload = self.allow_offload
        task = self._loop.create_task(self._handle(comm))
        # A loop may end without its tasks, as those of Dask's own programs do; its connections end with it.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._handlers.add(task)
        task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Task[None]) -> None:
        self._handlers.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # That the peer leaves is how most connections end.
            level = logging.DEBUG if isinstance(error, CommClosedError) else logging.ERROR
            log.log(level, "the handler of a connection failed", exc_info=error)

    async def _handle(self, comm: HawserComm) -> None:
        try:
            await self.on_connection(comm)
        except CommClosedError:
            log.info("connection from %s closed before the handshake was done", comm.peer_address)
            comm.abort()
            return
        except BaseException:
            comm.abort()
            raise
        if self.comm_handler is not None:
            await self.comm_handler(comm)

    def get_host_port(self) -> tuple[str, int]:
        """The address it is bound to. Raises ValueError before start()."""
        if self._listener is None:
            raise ValueError("invalid operation on a listener that is not started")
        return self._host, self.port

    @property
    def listen_address(self) -> str:
        return self.prefix + unparse_host_port(*self.get_host_port())

    @property
    def contact_address(self) -> str:
        host, port = self.get_host_port()
        return self.prefix + unparse_host_port(ensure_concrete_host(host, default_host=self.default_host), port)


class UCXListener(HawserListener):
    """As Dask's own was: takes an address with its scheme."""

    def __init__(self, address: str, *args: Any, **connection_args: Any) -> None:
        connection_args.setdefault("prefix", "ucx://")
        super().__init__(address.removeprefix("ucx://"), *args, **connection_args)
