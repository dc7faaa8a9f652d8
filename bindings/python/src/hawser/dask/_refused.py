"""Saying that a listener turned somebody away: what no peer of Dask sends never becomes a connection that could log."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any

import hawser

log = logging.getLogger("hawser.dask")

# Seconds between looks.
INTERVAL = 5.0

_REASONS = {
    "strangers": "silent, garbage, given up, or of another protocol or version",
    "bad_auth": "without the key of this cluster",
}


class Refusals:
    """Looks at the counters of a listener of Hawser while its loop runs."""

    def __init__(self, listener: Any, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._address = address
        self._said = dict.fromkeys(_REASONS, 0)
        _later(weakref.ref(self), loop)

    def say(self) -> None:
        """Log how many were turned away since the last time."""
        try:
            info = self._listener.info()
        except hawser.HawserError:
            return  # closed with its worker
        for reason, text in _REASONS.items():
            if new := info[reason] - self._said[reason]:
                log.warning("%s refused %d connections: %s", self._address, new, text)
                self._said[reason] = info[reason]


def _later(refusals: weakref.ref[Refusals], loop: asyncio.AbstractEventLoop) -> None:
    loop.call_later(INTERVAL, _look, refusals, loop)


def _look(refusals: weakref.ref[Refusals], loop: asyncio.AbstractEventLoop) -> None:
    """Until the listener is closed, which drops them."""
    found = refusals()
    if found is not None:
        found.say()
        _later(refusals, loop)
