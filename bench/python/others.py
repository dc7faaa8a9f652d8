#!/usr/bin/env python3
"""Half a round trip of a small message through Python by every way that is installed (hawser._perf_peers).

    .venv/bin/python bench/python/others.py [--size 8] [--rounds 5] [--seconds 1] [--ucx UCX]

Every round runs each way once, in turns, both sides pinned to a core of their own; UCXX in each of its progress modes,
of which the fastest counts. To have UCXX beside the others install hawser-ucx[bench] and ucxx into one environment, and
run this by its interpreter (bench/run.py: HAWSER_BENCH_PYTHON). Prints JSON: seconds by way, and why ways are missing.
"""

from __future__ import annotations

import argparse
import json
import os

import peers
from hawser._perf_pair import Pair
from hawser._perf_peers import installed

UCXX_MODES = ("thread", "thread-polling", "polling", "blocking")


def measure(name: str, args: argparse.Namespace, mode: str | None = None) -> float:
    if mode is not None:
        os.environ["UCXPY_PROGRESS_MODE"] = mode
    pair = Pair(name, args.cpus)
    try:
        return pair.half_round_trip(args.size, args.seconds)
    finally:
        pair.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--ucx", default="", help="Hawser's: system, wheel or a folder")
    args = parser.parse_args()
    peers.place(args)
    found, missing = installed()
    seconds: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        for name in found:
            for mode in UCXX_MODES if name == "ucxx" else (None,):
                way = name if mode is None else f"{name} {mode}"
                try:
                    seconds.setdefault(way, []).append(measure(name, args, mode))
                except (EOFError, OSError) as e:
                    missing.append(f"{way}: failed: {e or 'an end is gone'}")
    print(json.dumps({"seconds": {way: times for way, times in seconds.items() if times}, "missing": missing}))


if __name__ == "__main__":
    main()
