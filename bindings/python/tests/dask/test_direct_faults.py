# TIMEOUT: 120
# SOAK: 900
"""Readers of lent memory while its owners are killed, stopped, cancel and cut, and use the memory for something else at
once: what arrives is whole and right, or the connection is lost. Six seconds; five minutes with HAWSER_SOAK=1."""

import asyncio
import collections
import contextlib
import os
import random
import signal
import time

import numpy as np
import pytest
from dask_support import nothing_left, spawned
from distributed.comm import connect, listen
from distributed.protocol import to_serialize

from hawser.dask import _direct

SECONDS = 300 if os.environ.get("HAWSER_SOAK") else 6
OWNERS = 2
READERS = 4
# What an owner does with an answer; what a reader does.
WAYS = [*["write"] * 4, "free", "cancel", "cut", "abort", "close", "give up"]
ENDS = ("abort", "close")
OTHER = 1 << 40

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(_direct._readv is None, reason="the system has no process_vm_readv()"),
]


async def _answer(comm, rng, value, length, way):
    """An answer, all of one value. False: the connection has ended."""
    arrays = np.full(length, value), np.full(length // 2, value)
    message = {"value": value, "arrays": [to_serialize(array) for array in arrays]}
    if way in ("cancel", "cut"):
        comm._ahead = 0  # wait until it is read
        writing = asyncio.ensure_future(comm.write(message))
        await asyncio.sleep(rng.uniform(0, 0.01))
        if way == "cancel":
            writing.cancel()
        else:
            comm._cut()
        await asyncio.wait([writing])
        if writing.cancelled() or writing.exception() is not None:
            for array in arrays:
                array[:] = OTHER
            return False
        return not comm.closed()
    await comm.write(message)
    del arrays, message
    if way == "free":
        for _ in range(2):
            np.full(length, OTHER)
    elif way == "abort":
        comm.abort()
    elif way == "close":
        await comm.close()
    return way not in ENDS


def _own(pipe, seed):
    rng = random.Random(seed)

    async def handle(comm):
        with contextlib.suppress(OSError):
            while await _answer(comm, rng, *await comm.read()):
                pass
        comm.abort()

    async def main():
        async with listen("ucx://127.0.0.1:0", handle) as listener:
            pipe.send(listener.contact_address)
            await asyncio.sleep(3600)

    asyncio.run(main())


class Owner:
    """A process, and the next one after its death."""

    def __init__(self, rng):
        self._rng = rng
        self.start()

    def start(self):
        self._spawned = spawned(_own, self._rng.randrange(1 << 30))
        pipe, self._process = self._spawned.__enter__()
        self.address = pipe.recv()

    def signal(self, number):
        os.kill(self._process.pid, number)

    def end(self):
        self._spawned.__exit__(None, None, None)


async def _read(owners, rng, end, seen):
    comm = None
    value = 0
    while time.monotonic() < end:
        value += 1
        way = rng.choice(WAYS)
        length = rng.choice([40_000, 400_000, 3_000_000])
        if comm is None:
            with contextlib.suppress(OSError):
                comm = await connect(rng.choice(owners).address, timeout=1)
        if comm is None:
            seen["not connected"] += 1
            continue
        try:
            await comm.write((value, length, way))
            reading = asyncio.ensure_future(comm.read())
            if way == "give up":
                await asyncio.sleep(rng.uniform(0, 0.01))
                reading.cancel()
            await asyncio.wait([reading], timeout=30)
            assert reading.done(), f"{way}: neither an answer nor an end"
            got = reading.result()
        except (OSError, asyncio.CancelledError):
            seen[way, "lost"] += 1
            comm.abort()
            comm = None
            continue
        assert got["value"] == value and [len(array) for array in got["arrays"]] == [length, length // 2]
        for array in got["arrays"]:
            assert (array == value).all(), (way, value, np.unique(array)[:5])
        seen[way, "right"] += 1
        if way in (*ENDS, "cancel", "cut"):  # which may come after the answer
            comm.abort()
            comm = None
    if comm is not None:
        comm.abort()


async def _disturb(owners, rng, end, seen):
    while time.monotonic() < end:
        await asyncio.sleep(rng.uniform(0.05, 0.8))
        owner = rng.choice(owners)
        if rng.random() < 0.5:
            owner.signal(signal.SIGSTOP)
            await asyncio.sleep(rng.uniform(0, 0.5))
            if rng.random() < 0.5:
                owner.signal(signal.SIGCONT)
                seen["stopped"] += 1
                continue
        owner.signal(signal.SIGKILL)
        seen["killed"] += 1
        await asyncio.to_thread(owner.end)
        await asyncio.to_thread(owner.start)


async def test_owners_that_are_disturbed():
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    seen = collections.Counter()
    with contextlib.ExitStack() as stack:
        owners = []
        for _ in range(OWNERS):
            owners.append(Owner(rng))
            stack.callback(owners[-1].end)
        end = time.monotonic() + SECONDS
        readers = [_read(owners, random.Random(rng.random()), end, seen) for _ in range(READERS)]
        await asyncio.gather(*readers, _disturb(owners, rng, end, seen))
    await asyncio.get_running_loop().shutdown_default_executor()
    print(seen)
    # What is written comes, also when the connection is closed then: only a death takes it.
    lost = sum(seen[way, "lost"] for way in ("write", "free", *ENDS))
    assert seen["write", "right"] and lost <= seen["killed"] * READERS, seen


@pytest.fixture(autouse=True)
def leaks(event_loop):
    with nothing_left(event_loop, marked=False):
        yield
    assert not _direct._lingering and not _direct._lenders
