"""Helpers for tests of UCXX's asyncio API."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def captured_logger(
    logger: str | logging.Logger, level: int = logging.INFO, propagate: bool | None = None
) -> Iterator[io.StringIO]:
    """What a logger writes meanwhile."""
    if isinstance(logger, str):
        logger = logging.getLogger(logger)
    before = logger.level, logger.handlers[:], logger.propagate
    text = io.StringIO()
    logger.handlers[:] = [logging.StreamHandler(text)]
    logger.setLevel(level)
    if propagate is not None:
        logger.propagate = propagate
    try:
        yield text
    finally:
        level_before, logger.handlers[:], logger.propagate = before
        logger.setLevel(level_before)


def _timeout(config: Any) -> float:
    """Of the test that runs: UCXX's conftest keeps it in pytest's stash, older ones in its cache."""
    from .pytest_stash_keys import ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY

    kept: float | None = config.stash.get(ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY, None)
    if kept is None and (cache := getattr(config, "cache", None)) is not None:
        kept = (cache.get("asyncio_timeout", None) or {}).get("timeout")
    return 60.0 if kept is None else float(kept)


def compute_timeouts(pytestconfig: Any) -> tuple[float, float]:
    """Timeouts in seconds for asyncio and for processes, below that of the test."""
    timeout = _timeout(pytestconfig)
    return max(timeout * 0.8, timeout - 10), max(timeout * 0.9, timeout - 5)


async def wait_listener_client_handlers(listener: Any) -> None:
    """Wait until a listener serves no client any more."""
    await listener._wait_for_active_clients()
