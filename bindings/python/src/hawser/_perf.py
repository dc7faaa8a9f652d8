"""python -m hawser perf: round trips between two processes on this machine."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from typing import Any

import hawser


def _serve(pipe: Any, sizes: list[int], seconds: float) -> None:
    async def run() -> None:
        async with hawser.listen(host="127.0.0.1") as listener:
            pipe.send(listener.port)
            async with await listener.accept() as ep:
                data = bytearray(max(sizes))
                try:
                    while True:
                        n = await ep.recv(data)
                        await ep.send(memoryview(data)[:n])
                except hawser.PeerClosedError:
                    pass

    asyncio.run(run())


async def _round_trips(ep: hawser.Endpoint, size: int, seconds: float) -> tuple[int, float]:
    out, into = bytearray(size), bytearray(size)
    count, start = 0, time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        for _ in range(10):
            await ep.send(out)
            await ep.recv(into)
        count += 10
    return count, took


async def _measure(port: int, sizes: list[int], seconds: float) -> None:
    async with hawser.connect("127.0.0.1", port) as ep:
        print(f"lanes: {ep.info()['lanes']}")
        print(f"{'bytes':>12} {'latency us':>12} {'MB/s':>12}")
        for size in sizes:
            await _round_trips(ep, size, seconds / 10)
            count, took = await _round_trips(ep, size, seconds)
            print(f"{size:12} {took / count / 2 * 1e6:12.2f} {2 * count * size / took / 1e6:12.1f}", flush=True)


def perf(args: argparse.Namespace) -> int:
    """Half a round trip between two processes on this machine, for each size."""
    mp = multiprocessing.get_context("spawn")
    here, there = mp.Pipe()
    server = mp.Process(target=_serve, args=(there, args.sizes, args.seconds))
    server.start()
    asyncio.run(_measure(here.recv(), args.sizes, args.seconds))
    server.join()
    return 0
