"""Connecting to peers, by socket address or by worker address."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from . import _check, _core
from . import _constants as c
from ._context import nanoseconds
from ._defaults import default_worker
from ._endpoint import Endpoint
from ._unique import Unique
from ._worker import Worker


class Connecting(Unique):
    """A connection on its way: `await` gives the endpoint, `async with` closes it in the end."""

    def __init__(self, worker: Worker, id: int, operation: _core.Operation[int]) -> None:
        self.operation = operation
        self.endpoint = Endpoint(worker, id)

    def __await__(self) -> Generator[Any, None, Endpoint]:
        return self._finish().__await__()

    async def _finish(self) -> Endpoint:
        try:
            await self.operation
        except BaseException:
            self.endpoint.abort()
            raise
        return self.endpoint

    def wait(self, timeout: float | None = None) -> Endpoint:
        """Block until it is connected."""
        try:
            self.operation.wait(timeout)
        except BaseException:
            self.endpoint.abort()
            raise
        return self.endpoint

    async def __aenter__(self) -> Endpoint:
        return await self

    async def __aexit__(self, *exc: object) -> None:
        await self.endpoint.close()

    def __repr__(self) -> str:
        return f"<hawser.Connecting {self.endpoint.id:#x} {'ended' if self.operation.done() else 'pending'}>"


def connect(
    host: str,
    port: int,
    *,
    worker: Worker | None = None,
    timeout: float | None = None,
    tcp_only: bool = False,
    raw: bool = False,
    close_timeout: float = 0.0,
    local_address: str | None = None,
) -> Connecting:
    """Connect to a listener.

    host: name, IPv4 or IPv6 address; every address that it resolves to is tried.
    worker: the worker of the running event loop if None.
    timeout: seconds until TimedOutError; 30 if None.
    tcp_only: do not use shared memory with this peer. raw: the peer is a plain UCX program.
    close_timeout: seconds that close() may take for what was sent; 5 if 0.
    Raises ResolveError, RefusedError, HawserConnectionResetError, RejectedError, TimedOutError,
    PeerVersionError, AuthError, UnreachableError.
    """
    flags = (c.EndpointFlag.TCP_ONLY if tcp_only else 0) | (c.EndpointFlag.RAW if raw else 0)
    worker = default_worker() if worker is None else _check.one("worker", worker, Worker)
    closing = nanoseconds("close_timeout", close_timeout)
    return Connecting(worker, *_core.connect(worker, host, port, flags, closing, local_address, _deadline(timeout)))


def connect_address(
    address: bytes,
    *,
    worker: Worker | None = None,
    timeout: float | None = None,
    raw: bool = False,
    lazy: bool = False,
    close_timeout: float = 0.0,
) -> Connecting:
    """Connect to a worker by its address or a blob that holds one, see Worker.address().

    raw: the bytes are UCX's own. lazy: do not wait for the peer's answer (only without a hello).
    Take addresses only from peers that are trusted. Raises InvalidError (not an address, or damaged),
    PeerVersionError, UnreachableError, TimedOutError.
    """
    flags = (c.EndpointFlag.LAZY if lazy else 0) | (c.EndpointFlag.RAW if raw else 0)
    worker = default_worker() if worker is None else _check.one("worker", worker, Worker)
    closing = nanoseconds("close_timeout", close_timeout)
    address = _check.octets("address", address)
    return Connecting(worker, *_core.connect_address(worker, address, flags, closing, _deadline(timeout)))


def _deadline(timeout: float | None) -> int:
    return 0 if timeout is None else max(1, nanoseconds("timeout", timeout))
