"""How many descriptors this process has, for the monitors of Dask's servers.

Each asks twice a second, by listing all of them, and a process may have a server for each of its nannies. A connection
of Hawser has several descriptors, so what that costs would grow with the square of the workers."""

from __future__ import annotations

import os
import time
from typing import Any

_FOLDER = "/proc/self/fd"
# How long one listing serves all. A monitor asks again after twice as long.
_SECONDS = 0.25

_listed = -_SECONDS, 0  # when, how many


def count_for(server: Any) -> None:
    """Have the monitor of one of Dask's servers ask here."""
    monitor = getattr(server, "monitor", None)
    if monitor is not None and os.path.isdir(_FOLDER):
        monitor.proc.num_fds = count


def count() -> int:
    """Open descriptors; where the kernel does not tell their number, as of the last quarter of a second."""
    return _told() or _counted()


def _told() -> int:
    """Since Linux 6.2; 0 before."""
    return os.stat(_FOLDER).st_size


def _counted() -> int:
    global _listed
    now = time.monotonic()
    if now - _listed[0] >= _SECONDS:
        _listed = now, len(os.listdir(_FOLDER)) - 1  # without that of the listing itself
    return _listed[1]
