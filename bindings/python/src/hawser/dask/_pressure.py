"""The memory that Dask lets the workers of this process have."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any


def _managers() -> Iterator[tuple[Any, Any]]:
    """The workers here that have a limit, and who looks after it."""
    module = sys.modules.get("distributed.worker")
    for worker in list(module.Worker._instances) if module else []:
        manager = getattr(worker, "memory_manager", None)  # not there yet while a worker is being made
        if manager is not None and manager.memory_limit:
            yield worker, manager


def memory_limit() -> int | None:
    """Bytes that the process may have by the least of them; None: no worker has a limit."""
    return min((int(manager.memory_limit) for _, manager in _managers()), default=None)


def short_of_memory() -> bool:
    """Whether the process has reached what a worker goes down to when it spills, or else does something about."""
    for worker, manager in _managers():
        fractions = (manager.memory_target_fraction, manager.memory_spill_fraction, manager.memory_pause_fraction)
        first = next((fraction for fraction in fractions if fraction), None)
        if first is not None and worker.monitor.get_process_memory() >= first * manager.memory_limit:
            return True
    return False
