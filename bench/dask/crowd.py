"""What a cluster of many workers on one machine costs over tcp:// and ucx:// (Hawser): crowd.py [--workers 64]

One cluster after another, in turns. One line of JSON for each: seconds to start, and to shuffle from every worker to
every other one (the first time and again); memory of all processes (a page shared by n counts 1/n each) and what lies
in /dev/shm, with what has no name any more, and in System V segments; connections by transport, of which those that are
not over shared memory are fallbacks; CPU while nothing happens. A last line has the ratios to tcp, by medians.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
from dask.distributed import Client, LocalCluster

MIB = 1 << 20
TICK = os.sysconf("SC_CLK_TCK")


def processes(pid: int) -> Iterator[int]:
    """A process and all below it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from processes(int(child))


def memory() -> int:
    total = 0
    for pid in processes(os.getpid()):
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        total += sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def cpu() -> float:
    """Seconds that all processes have used so far."""
    total = 0
    for pid in processes(os.getpid()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def shared() -> int:
    """Bytes of memory that /dev/shm and the System V segments take."""
    found = os.statvfs("/dev/shm")
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    head, *lines = (line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines())
    return used + sum(int(line[head.index("rss")]) for line in lines)


def connections(dask_worker: Any) -> dict[str, int]:
    """Open connections of a process by what they travel on."""
    from distributed.comm.core import Comm

    open_now = [comm for comm in Comm._instances if not comm.closed()]
    names = (getattr(comm, "transport", type(comm).__name__) for comm in open_now)
    return dict(collections.Counter("+".join(sorted({lane.split("/")[0] for lane in n.split()})) for n in names))


def shuffle(client: Client, n: int) -> float:
    side = n * 32
    x = da.ones((side, side), chunks=(32, side)).rechunk((side, 32), method="p2p").sum()
    start = time.perf_counter()
    assert client.compute(x, sync=True) == side * side
    return time.perf_counter() - start


def measure(protocol: str, workers: int, idle: float) -> dict[str, Any]:
    used = shared()
    start = time.perf_counter()
    options = {"n_workers": workers, "threads_per_worker": 1, "protocol": protocol, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        client.wait_for_workers(workers)
        line: dict[str, Any] = {"start_seconds": round(time.perf_counter() - start, 2)}
        line["shuffle_seconds"] = [round(shuffle(client, workers), 2) for _ in range(2)]
        found: collections.Counter[str] = collections.Counter()
        for one in client.run(connections).values():
            found.update(one)
        line["memory_MiB"] = round(memory() / MIB)
        line["shm_MiB"] = round((shared() - used) / MIB, 1)
        line["connections"] = dict(found)
        line["fallbacks"] = sum(n for name, n in found.items() if protocol == "ucx" and name == "tcp")
        time.sleep(2)  # what the shuffle left to be tidied up
        before, start = cpu(), time.perf_counter()
        time.sleep(idle)
        line["idle_cpu_percent"] = round(100 * (cpu() - before) / (time.perf_counter() - start), 2)
        return line


def ratios(lines: list[dict[str, Any]]) -> dict[str, float]:
    def median(protocol: str, key: str) -> float:
        values = [line[key] for line in lines if line["protocol"] == protocol]
        return statistics.median(value[-1] if isinstance(value, list) else value for value in values)

    keys = ("start_seconds", "shuffle_seconds", "memory_MiB", "idle_cpu_percent")
    return {key: round(median("ucx", key) / max(median("tcp", key), 1e-9), 2) for key in keys}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--protocols", nargs="*", default=["tcp", "ucx"])
    parser.add_argument("--idle", type=float, default=15, metavar="SECONDS", help="for how long the CPU is watched")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    logging.getLogger("distributed.shuffle").setLevel(logging.ERROR)
    lines = []
    with dask.config.set({"distributed.comm.timeouts.connect": "120s", "distributed.comm.ucx.owner": "hawser"}):
        for _ in range(args.rounds):
            for protocol in args.protocols:
                head = {"bench": "dask", "case": f"crowd {args.workers}", "protocol": protocol}
                lines.append(head | measure(protocol, args.workers, args.idle))
                print(json.dumps(lines[-1]), flush=True)
    if {"tcp", "ucx"} <= set(args.protocols):
        print(json.dumps({"bench": "dask", "case": f"crowd {args.workers}", "to_tcp": ratios(lines)}))


if __name__ == "__main__":
    main()
