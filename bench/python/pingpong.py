#!/usr/bin/env python3
"""Half a round trip of a small message through Python, against raw UCX and asyncio streams.

    .venv/bin/python bench/python/pingpong.py --build build [--way await ...] [--size 8] [--rounds 5] [--pause 0]

Every round runs each way once, in turns, both sides pinned to a core of their own; raw UCX is ucx_perftest of the same
UCX. What counts is the median of chunks of 32 round trips (raw: the median round trip): seconds of half a round trip.
--pause: seconds that the client waits before each ping, so that the server is asleep when it comes; then every round
trip is timed alone, and raw UCX is raw_ucx_pause, whose server sleeps too.
Prints a table, or JSON with --json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hawser
import hawser.sync
import peers
from peers import CHUNK, clock, half_round_trip


def summary(args: Any, times: list[float]) -> float:
    return statistics.median(times) / 2 if args.pause else half_round_trip(times)


async def echo(args: Any, ep: Any) -> None:
    """What the server does, over an endpoint of hawser or of hawser.ucp."""
    data = bytearray(args.size)
    for _ in range(args.count):
        await ep.recv(data)
        await ep.send(data)


async def ask(args: Any, ep: Any) -> float:
    """What the client does, and how long half a round trip took."""
    data = bytearray(args.size)
    times = []
    for _ in range(args.count // args.chunk):
        if args.pause:
            time.sleep(args.pause)
        start = clock()
        for _ in range(args.chunk):
            await ep.send(data)
            await ep.recv(data)
        times.append(clock() - start)
    return summary(args, times[len(times) // 10 :])


async def await_server(args: Any, tell: Callable[[int], None]) -> None:
    async with hawser.listen(host="127.0.0.1") as listener:
        tell(listener.port)
        async with await listener.accept() as ep:
            await echo(args, ep)


async def await_client(args: Any, port: int) -> float:
    async with hawser.connect("127.0.0.1", port) as ep:
        return await ask(args, ep)


async def ucp_server(args: Any, tell: Callable[[int], None]) -> None:
    from hawser import ucp

    done = asyncio.get_running_loop().create_future()

    async def serve(ep: Any) -> None:
        await echo(args, ep)
        await ep.close()
        done.set_result(None)

    listener = ucp.create_listener(serve)
    tell(listener.port)
    await done
    listener.close()


async def ucp_client(args: Any, port: int) -> float:
    from hawser import ucp

    ep = await ucp.create_endpoint("127.0.0.1", port)
    took = await ask(args, ep)
    await ep.close()
    return took


async def streams_server(args: Any, tell: Callable[[int], None]) -> None:
    done = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(args.slow):
            writer.write(await reader.readexactly(args.size))
        await writer.drain()
        done.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    tell(server.sockets[0].getsockname()[1])
    await done
    server.close()


async def streams_client(args: Any, port: int) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = bytes(args.size)
    times = []
    for _ in range(args.slow // args.chunk):
        if args.pause:
            time.sleep(args.pause)
        start = clock()
        for _ in range(args.chunk):
            writer.write(data)
            await reader.readexactly(args.size)
        times.append(clock() - start)
    return summary(args, times)


async def sync_server(args: Any, tell: Callable[[int], None]) -> None:
    with hawser.sync.listen(host="127.0.0.1") as listener:
        tell(listener.port)
        with listener.accept() as ep:
            data = bytearray(args.size)
            for _ in range(args.count):
                ep.recv(data)
                ep.send(data)


async def sync_client(args: Any, port: int) -> float:
    with hawser.sync.connect("127.0.0.1", port) as ep:
        data = bytearray(args.size)
        times = []
        for _ in range(args.count // args.chunk):
            if args.pause:
                time.sleep(args.pause)
            start = clock()
            for _ in range(args.chunk):
                ep.send(data)
                ep.recv(data)
            times.append(clock() - start)
        return summary(args, times[len(times) // 10 :])


WAYS: dict[str, tuple[peers.Server, peers.Client]] = {
    "await": (await_server, await_client),
    "sync": (sync_server, sync_client),
    "ucp": (ucp_server, ucp_client),
    "streams": (streams_server, streams_client),
}


def raw(args: Any) -> float:
    """Half a round trip of raw UCX, in seconds."""
    if args.pause:
        command = [str(Path(args.build) / "bench" / "raw_ucx_pause"), str(args.count), str(int(args.pause * 1e6))]
        environment = {"LD_LIBRARY_PATH": os.environ["HAWSER_UCX"], "UCX_TLS": "sysv,cma,self,tcp", **os.environ}
        run = subprocess.run(
            [*command, *map(str, args.cpus)], capture_output=True, text=True, check=True, env=environment
        )
        done = json.loads(run.stdout)
        return float(done["half_round_trip_ns"]) * 1e-9
    found = peers.raw(args, "-t", "tag_lat", "-s", str(args.size), "-n", str(args.count), "--percentiles")
    return float(found["percentile_us"]) * 1e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=50_000, help="round trips")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--way", action="append", choices=sorted(WAYS), help="all if none is given")
    parser.add_argument("--ucx", default="", help="system, wheel or a folder")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.chunk = 1 if args.pause else CHUNK
    args.count -= args.count % args.chunk
    args.slow = args.count if args.pause else max(10, args.count // 50 // CHUNK) * CHUNK
    peers.place(args)
    ways = args.way or list(WAYS)
    found: dict[str, list[float]] = {"raw": []} | {way: [] for way in ways}
    for _ in range(args.rounds):
        found["raw"].append(raw(args))
        for way in ways:
            found[way].append(peers.measure(*WAYS[way], args))
    if args.json:
        print(json.dumps({"seconds": found}))
        return
    base = statistics.median(found["raw"])
    for way, times in found.items():
        took = statistics.median(times)
        print(f"{way:10} {took * 1e9:9.0f} ns   {took / base:8.2f} x raw   {(took - base) * 1e9:+9.0f} ns", flush=True)


if __name__ == "__main__":
    main()
