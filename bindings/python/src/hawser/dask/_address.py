"""Which addresses hosts have."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from distributed.utils import get_ip


async def address_of(host: str) -> str:
    """A name that has IPv6 addresses only, as one of them: these have workers of their own. Others as they are."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            return host  # connecting says what is wrong with it
        if found and all(family == socket.AF_INET6 for family, *_ in found):
            return str(found[0][4][0])
    return host


def ip_towards(host: str) -> str:
    """This machine's address through which another is reached. Old versions of Dask's get_ip() know IPv4 only, newer
    ones have no other function."""
    if ":" in host:
        try:
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
                s.connect((host, 80))
                return str(s.getsockname()[0])
        except OSError:
            pass  # Dask says so, and guesses
    return str(get_ip(host))
