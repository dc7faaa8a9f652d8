#!/usr/bin/env python3
"""What 1,000 idle receives cost another Python thread that computes meanwhile.

    .venv/bin/python bench/python/idle.py [--receives 1000] [--seconds 1] [--rounds 5]

The thread that runs the loop sleeps with the receives posted; the other one counts. In turns with the same loop without
receives. The other end of the connection is in a process of its own, and silent. Prints JSON: counts a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import peers


def counting(seconds: float) -> float:
    """What a thread gets done in a second of the CPU's time or the clock's, whichever is shorter."""
    total = 0
    start, end = time.perf_counter(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in range(1000):
            total += 1
    return total / (time.perf_counter() - start)


async def counted(seconds: float) -> float:
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(counting(seconds)))
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(seconds / 4)
    thread.join()
    return found[0]


async def server(args: Any, tell: Callable[[int], None]) -> None:
    import hawser

    async with hawser.listen(host="127.0.0.1") as listener:
        tell(listener.port)
        async with await listener.accept() as ep:
            await ep.recv(bytearray(4), args.receives)


async def client(args: Any, port: int) -> list[dict[str, float]]:
    import hawser

    rounds = []
    async with hawser.connect("127.0.0.1", port) as ep:

        async def idle(tag: int) -> None:
            await ep.recv(bytearray(8), tag)

        await counted(args.seconds / 4)
        for _ in range(args.rounds):
            # Before, with and after: a machine that slows down meanwhile is not the receives' fault.
            before = await counted(args.seconds)
            tasks = [asyncio.create_task(idle(tag)) for tag in range(args.receives)]
            await asyncio.sleep(0.05)
            during = await counted(args.seconds)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            rounds.append({"alone": (before + await counted(args.seconds)) / 2, "with": during})
        await ep.send(b"done", args.receives)
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receives", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ucx", default="")
    args = parser.parse_args()
    peers.place(args)
    print(json.dumps({"rounds": peers.measure(server, client, args), "cpus": len(os.sched_getaffinity(0))}))


if __name__ == "__main__":
    main()
