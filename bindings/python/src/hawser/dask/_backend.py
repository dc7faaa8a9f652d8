"""What Dask looks up for a scheme."""

from __future__ import annotations

from typing import Any

from distributed.comm.addressing import parse_host_port, unparse_host_port
from distributed.comm.registry import Backend
from distributed.utils import ensure_ip

from ._address import ip_towards
from ._connector import HawserConnector
from ._listener import HawserListener


class HawserBackend(Backend):
    """`hawser://host:port`."""

    prefix = "hawser://"

    def get_connector(self) -> HawserConnector:
        return HawserConnector(self.prefix)

    def get_listener(self, loc: str, handle_comm: Any, deserialize: bool, **connection_args: Any) -> HawserListener:
        return HawserListener(loc, handle_comm, deserialize, prefix=self.prefix, **connection_args)

    def get_address_host(self, loc: str) -> str:
        return parse_host_port(loc)[0]

    def get_address_host_port(self, loc: str) -> tuple[str, int]:
        return parse_host_port(loc)

    def resolve_address(self, loc: str) -> str:
        host, port = parse_host_port(loc)
        return unparse_host_port(ensure_ip(host), port)

    def get_local_address_for(self, loc: str) -> str:
        return unparse_host_port(ip_towards(ensure_ip(parse_host_port(loc)[0])), None)


class UCXBackend(HawserBackend):
    """`ucx://host:port`."""

    prefix = "ucx://"


class UCXXBackend(HawserBackend):
    """`ucxx://host:port`, where the distribution hawser-distributed-ucxx is installed and distributed-ucxx is not."""

    prefix = "ucxx://"
