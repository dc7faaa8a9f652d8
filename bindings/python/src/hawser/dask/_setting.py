"""A single setting of Dask's for UCX: where it is found, and what it may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dask
from dask.utils import parse_bytes, parse_timedelta

# The first one where a key is set wins. Dask makes the last one of `ucx`, which Dask-CUDA's first releases read.
NAMESPACES = ("distributed-ucxx", "distributed.comm.ucx", "distributed.ucx")

# As programs and environments write them.
_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def setting(key: str) -> Any:
    """The value of a key in the first namespace that has it, or None."""
    for namespace in NAMESPACES:
        value = dask.config.get(f"{namespace}.{key}", None)
        # distributed-ucxx and Dask-CUDA set keys that nobody has chosen to what is empty.
        if value is not None and value != {}:
            return value
    return None


def _wrong(key: str, value: object, wanted: str) -> ValueError:
    return ValueError(f"distributed.comm.ucx.{key} is {value!r}; it must be {wanted}")


def flag(key: str) -> bool | None:
    """True, False or None where the key is not set. Raises ValueError."""
    value = setting(key)
    if value is None:
        return None
    if (chosen := _FLAGS.get(str(value).lower())) is None:
        raise _wrong(key, value, "true or false")
    return chosen


def byte_count(key: str) -> int | None:
    """Bytes, as "64MiB" or a number; None where the key is not set. Raises ValueError."""
    value = setting(key)
    try:
        n = None if value is None else int(parse_bytes(value))
    except (ValueError, TypeError, OverflowError):
        n = -1
    if n is not None and n < 0:
        raise _wrong(key, value, 'a number of bytes, as "64MiB"')
    return n


def parse_seconds(value: Any) -> float | None:
    """Of a time as Dask writes it, "5s" or a number; None: it is none."""
    try:
        return float(parse_timedelta(value, default="seconds"))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None


def seconds(key: str) -> float | None:
    """Seconds, as "5s" or a number; None where the key is not set. Raises ValueError."""
    value = setting(key)
    if value is None:
        return None
    n = parse_seconds(value)
    if n is None or not 0 < n < 1e9:
        raise _wrong(key, value, 'a time above 0, as "5s"')
    return n


def tcp_timeout() -> float:
    """Seconds that the kernel would wait for a silent peer over tcp. Raises ValueError."""
    key = "distributed.comm.timeouts.tcp"
    value = dask.config.get(key, None)
    n = 30.0 if value is None else parse_seconds(value)
    if n is None or not -1e9 < n < 1e9:  # Dask takes what is too short for 2 s
        raise ValueError(f'{key} is {value!r}; it must be a time, as "30s"')
    return n


def mapping(key: str) -> dict[str, Any]:
    """Names with values; empty where the key is not set. Raises ValueError."""
    value = setting(key)
    if value is not None and not isinstance(value, Mapping):
        raise _wrong(key, value, 'names with values, as {"some-name": "value"}')
    return dict(value or {})
