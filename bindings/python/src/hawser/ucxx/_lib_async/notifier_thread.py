"""The thread that tells UCXX's futures of their end. Completions find their loop by themselves: it ends at once."""

from __future__ import annotations

import asyncio
from queue import Queue
from typing import Any


def _notifierThread(event_loop: asyncio.AbstractEventLoop, worker: Any, q: Queue[str]) -> None:
    """There is nothing to tell."""
