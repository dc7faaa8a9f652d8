"""What the benchmarks of the Python binding share: two processes, each on its core, and raw UCX beside them."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from typing import Any

mp = multiprocessing.get_context("spawn")

CHUNK = 32  # round trips that are timed together: a look at the clock costs as much as a call

Server = Callable[[Any, Callable[[Any], None]], Awaitable[Any]]
Client = Callable[[Any, Any], Awaitable[Any]]


def half_round_trip(chunks: list[float]) -> float:
    """Seconds, from what chunks of round trips took: the median, which a busy machine changes least."""
    return statistics.median(chunks) / CHUNK / 2


def clock() -> float:
    return time.perf_counter()


def _server(server: Server, args: Any, pipe: Any) -> None:
    os.sched_setaffinity(0, [args.cpus[0]])
    asyncio.run(server(args, pipe.send))  # type: ignore[arg-type]


def _client(client: Client, args: Any, pipe: Any) -> None:
    os.sched_setaffinity(0, [args.cpus[1]])
    pipe.send(asyncio.run(client(args, pipe.recv())))  # type: ignore[arg-type]


def measure(server: Server, client: Client, args: Any) -> Any:
    """What the client returned. The server tells where it listens; the client is given that."""
    server_pipe, server_end = mp.Pipe()
    client_pipe, client_end = mp.Pipe()
    processes = [
        mp.Process(target=_server, args=(server, args, server_end)),
        mp.Process(target=_client, args=(client, args, client_end)),
    ]
    for process in processes:
        process.start()
    server_end.close()
    client_end.close()
    try:
        client_pipe.send(server_pipe.recv())
        return client_pipe.recv()
    finally:
        for process in processes:
            process.join(20)
            if process.is_alive():
                process.kill()


def raw(args: Any, *options: str) -> dict[str, Any]:
    """What ucx_perftest of the same UCX finds, by `hawser perf --compare`."""
    command = [os.path.join(args.build, "hawser"), "perf", "--json", "--compare", "1", *options]
    done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found: dict[str, Any] = done["rounds"][0]["raw"]
    return found


def place(args: Any) -> None:
    """Choose the cores, and the UCX for every process that is started from here."""
    import hawser

    cpus = sorted(os.sched_getaffinity(0))
    args.cpus = (cpus[1 % len(cpus)], cpus[0])
    os.environ["HAWSER_UCX"] = hawser.library(args.ucx or None)["ucx_path"]
