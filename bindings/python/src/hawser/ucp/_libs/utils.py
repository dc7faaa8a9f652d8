"""Small helpers that UCX-Py offers."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from typing import Any

from hawser._check import one

_SIOCGIFADDR = 0x8915


def nvtx_annotate(message: str | None = None, color: str | None = None, domain: str | None = None) -> Any:
    """nvtx.annotate where nvtx is installed, else nothing: a decorator and a context manager."""
    try:
        from nvtx import annotate
    except ImportError:
        return _Nothing()
    return annotate(message, color=color, domain=domain)


class _Nothing(contextlib.ContextDecorator):
    def __call__(self, function: Any) -> Any:
        return function

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def _address_of(ifname: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("256s", ifname[:15].encode())
        return socket.inet_ntoa(fcntl.ioctl(s.fileno(), _SIOCGIFADDR, request)[20:24])


def get_address(ifname: str | None = None) -> str:
    """The IPv4 address of an interface: `ifname`, else $UCXPY_IFNAME, else the first that has one.

    InfiniBand comes first, then Ethernet, then Docker's; the loopback where there is nothing else.
    Raises OSError for an interface that has none.
    """
    if ifname is None:
        ifname = os.environ.get("UCXPY_IFNAME")
    if ifname is not None:
        return _address_of(one("ifname", ifname, str))
    names = sorted(name for _, name in socket.if_nameindex())
    for prefix in ("ib", "eth", "en", "docker", "lo"):
        for name in names:
            if name.startswith(prefix):
                with contextlib.suppress(OSError):
                    return _address_of(name)
    raise RuntimeError("No interface has an IPv4 address; set UCXPY_IFNAME to one that has")


def format_time(seconds: float) -> str:
    """For people."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds * 1e9:.2f} ns"


def format_bytes(n: float) -> str:
    """For people."""
    for prefix, scale in (("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("ki", 2**10)):
        if n >= scale * 0.9:
            return f"{n / scale:.2f} {prefix}B"
    return f"{int(n)} B"


_UNITS = {"": 1, "b": 1}
for _i, _letter in enumerate("kmgtp", 1):
    _UNITS |= {_letter: 1000**_i, _letter + "b": 1000**_i, _letter + "i": 1024**_i, _letter + "ib": 1024**_i}


def parse_bytes(text: str | float) -> int:
    """ "10 Mb" as a number of bytes."""
    if isinstance(text, (int, float)):
        return int(text)
    text = one("text", text, str).replace(" ", "").lower()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(digits) :]
    if unit not in _UNITS:
        raise ValueError(f"Could not interpret '{unit}' as a byte unit")
    return int(float(digits or 1) * _UNITS[unit])


def print_separator(separator: str = "-", length: int = 80) -> None:
    """A line across."""
    print(separator * length)


def print_key_value(key: str, value: Any, key_length: int = 25) -> None:
    """A key and its value."""
    print(f"{key: <{key_length}} | {value}")


def print_multi(values: Any, key_length: int = 25) -> None:
    """Columns."""
    assert isinstance(values, (tuple, list)) and len(values) > 1
    print(" | ".join(f"{value: <{key_length}}" for value in values))
