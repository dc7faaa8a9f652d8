"""Connecting to a listener of Dask."""

from __future__ import annotations

import functools
import logging
import time
from typing import Any

from distributed.comm.addressing import parse_host_port
from distributed.comm.core import CommClosedError, Connector, FatalCommClosedError

import hawser

from ._address import address_of
from ._comm import HawserComm
from ._config import close_timeout, connect_timeout, own_choice, refuse_encryption, ucx_config
from ._workers import loop_worker

log = logging.getLogger("hawser.dask")

# Trying again does not help. Who takes a connection in and resets it is a process that ends: over tcp it would
# have stood, and its first message failed.
_FATAL = (
    hawser.AuthError,
    hawser.ForkedError,
    hawser.HawserConnectionResetError,
    hawser.InvalidError,
    hawser.ProtocolError,
)

# A peer that has run out of descriptors looks like one with another version of UCX. It has them again after a while.
_SHORTAGE = 5.0


@functools.lru_cache(1000)
def _say_unreachable(text: str) -> None:
    """Once: Dask tries again, a worker for ever, and says no more than that it waits."""
    asked = ucx_config() | own_choice()
    settings = ", ".join(f"UCX_{name}={asked[name]}" for name in ("TLS", "NET_DEVICES") if name in asked)
    log.warning("%s%s", text, f" ({settings})" if settings else "")


class HawserConnector(Connector):
    """Makes connections of one scheme."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._turned_away: float | None = None  # since when this peer looks like one with another UCX

    def _is_final(self, error: hawser.HawserError) -> bool:
        if not isinstance(error, hawser.PeerVersionError):
            return isinstance(error, _FATAL)
        now = time.monotonic()
        self._turned_away = self._turned_away or now
        return now - self._turned_away > _SHORTAGE

    async def connect(self, address: str, deserialize: bool = True, **connection_args: Any) -> HawserComm:
        """Connect to `host:port`. Raises FatalCommClosedError where another try is useless,
        CommClosedError for every other failure; cancelling it leaves nothing behind."""
        refuse_encryption(self.prefix + address, connection_args)
        name, port = parse_host_port(address)
        host = await address_of(name)
        try:
            endpoint = await hawser.connect(
                host, port, worker=loop_worker(host), timeout=connect_timeout(), close_timeout=close_timeout()
            )
        except hawser.HawserError as e:
            text = f"connecting to {self.prefix}{address}: {type(e).__name__}: {e}"
            if isinstance(e, hawser.UnreachableError):
                _say_unreachable(text)
            raise (FatalCommClosedError if self._is_final(e) else CommClosedError)(text) from e
        try:
            return HawserComm(endpoint, self.prefix, deserialize)
        except CommClosedError as e:  # as a reset that comes before the connection is made
            endpoint.abort()
            raise FatalCommClosedError(f"connecting to {self.prefix}{address}: {e}") from e
        except BaseException:
            endpoint.abort()
            raise


class UCXConnector(HawserConnector):
    """As Dask's own was: made without arguments."""

    def __init__(self, prefix: str = "ucx://") -> None:
        super().__init__(prefix)
