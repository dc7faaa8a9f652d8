"""Receives of which some are cancelled, in any moment, and tried again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def received_at_last(receive: Callable[[], Awaitable[T]], chance: random.Random) -> tuple[T, int]:
    """What receive() gives in the end, and how many times it was cancelled before."""
    cancelled = 0
    while True:
        task = asyncio.ensure_future(receive())
        if chance.random() < 0.5:
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() * 0.003)
            task.cancel()
        try:
            return await task, cancelled
        except asyncio.CancelledError:
            cancelled += 1
