"""Helpers of UCX-Py."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import multiprocessing
import os
import socket
from collections.abc import Sequence
from typing import Any

mp = multiprocessing.get_context("spawn")


def get_event_loop() -> asyncio.AbstractEventLoop:
    """The running event loop, or a new one where none runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.new_event_loop()


def get_ucxpy_logger() -> logging.Logger:
    """The logger "ucx"; its level is $UCXPY_LOG_LEVEL."""
    logger = logging.getLogger("ucx")
    if not any(getattr(handler, "hawser", False) for handler in logger.handlers):
        handler = logging.StreamHandler()
        handler.hawser = True  # type: ignore[attr-defined]
        handler.setFormatter(
            logging.Formatter(f"[%(created)f] [{socket.gethostname()}:{os.getpid()}] UCXPY  %(levelname)s %(message)s")
        )
        logger.addHandler(handler)
        logger.propagate = False
    level = os.environ.get("UCXPY_LOG_LEVEL", "WARNING")
    try:
        logger.setLevel(level.upper())
    except ValueError:
        raise ValueError(f"UCXPY_LOG_LEVEL is {level!r}; it must be a level of logging, as WARNING") from None
    return logger


def hash64bits(*args: Any) -> int:
    """64 bits that depend on the arguments only."""
    return int(hashlib.sha1(repr(args).encode()).hexdigest()[:16], 16)


def hmean(a: Sequence[float]) -> float:
    """The harmonic mean."""
    if len(a) == 0 or any(x == 0 for x in a):
        return 0.0
    return len(a) / sum(1 / x for x in a)
