"""Helpers of UCXX."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from hawser.ucp._libs.utils import (
    format_bytes,
    format_time,
    nvtx_annotate,
    parse_bytes,
    print_key_value,
    print_multi,
    print_separator,
)
from hawser.ucp._libs.utils import get_address as _get_address
from hawser.ucp.utils import get_ucxpy_logger, hmean, mp

_IPV6 = Path("/proc/net/if_inet6")


def get_address(ifname: str | None = None, use_ipv6: bool = False) -> str:
    """The address of an interface: `ifname`, else $UCXPY_IFNAME, else the first that has one.

    Raises OSError for an interface that has none.
    """
    if not use_ipv6:
        return _get_address(ifname)
    for line in _IPV6.read_text().splitlines() if _IPV6.exists() else ():
        fields = line.split()
        if ifname in (None, fields[5]) and (ifname is not None or fields[5] != "lo"):
            return str(ipaddress.ip_address(bytes.fromhex(fields[0])))
    raise OSError(f"No IPv6 address of {ifname or 'any interface'}")


__all__ = [
    "format_bytes",
    "format_time",
    "get_address",
    "get_ucxpy_logger",
    "hmean",
    "mp",
    "nvtx_annotate",
    "parse_bytes",
    "print_key_value",
    "print_multi",
    "print_separator",
]
