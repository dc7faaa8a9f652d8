#!/usr/bin/env python3
"""Measures Hawser against raw UCX and against its own goals.

    bench/run.py --build build                 every case on every UCX that is here
    bench/run.py --build build --quick         fewer rounds and iterations, without the long cases
    bench/run.py --build build --case NAME     one case (or several; --list names them)

Peers run in turns with Hawser, on the same cores, in one run: on a shared machine only ratios within a round mean
anything. Latencies are judged by the median iteration (half a round trip), since the average of a run is mostly what
else the machine did meanwhile; both are in the JSON. Each case adds a line to build/bench/results.jsonl.
"""

import argparse
import glob
import json
import os
import platform
import subprocess
import sys
import time

from cases import cases
from harness import Bench, Skip


def wheel_folder(build):
    """The libraries of a UCX wheel: of this Python, or of .venv beside the build."""
    roots = [*sys.path, os.path.dirname(os.path.abspath(build)), os.getcwd()]
    for root in roots:
        for pattern in ("libucx/lib", ".venv/lib/python3*/site-packages/libucx/lib"):
            for found in glob.glob(os.path.join(root, pattern)):
                if os.path.exists(os.path.join(found, "libucp.so.0")):
                    return found
    return None


def find_ucx(bench, wanted):
    """What `hawser info` says of each UCX that is here."""
    wheel = wheel_folder(bench.build) or "wheel"
    choices = [wheel if wanted == "wheel" else wanted] if wanted else ["system", wheel]
    found = []
    for choice in choices:
        run = subprocess.run(
            [bench.program("hawser"), "info", "--json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HAWSER_UCX": choice},
        )
        if run.returncode:
            print(f"bench: no UCX by '{choice}': {run.stderr.strip()}", file=sys.stderr)
        else:
            found.append(json.loads(run.stdout)["ucx"])
    return found


def measure(bench, name, function, options):
    """One case, as the record of its line."""
    record = {
        "case": name,
        "ucx": bench.ucx["version"],
        "ucx_path": bench.ucx["path"],
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "rounds": bench.rounds,
        "quick": bench.quick,
        "time": int(time.time()),
    }
    try:
        text, ratio, goal, met, details = function(bench, *options)
        record.update(text=text, ratio=ratio, goal=goal, met=met, details=details)
    except Skip as reason:
        record.update(text=f"skipped: {reason}", ratio=None, goal="", met=None)
    except (RuntimeError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        record.update(text=f"failed: {error}", ratio=None, goal="", met=False)
    return record


def row(record):
    ratio = record["ratio"]
    shown = f"{ratio['median']:.3f} ({ratio['min']:.3f} .. {ratio['max']:.3f})" if ratio else ""
    met = {True: "yes", False: "NO", None: "-"}[record["met"]]
    return f"{record['ucx']:8} {record['case']:18} {met:4} {shown:26} {record['goal']:26} {record['text']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="folder of the build (build)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and iterations, without the long cases")
    parser.add_argument("--case", action="append", help="only this one; may be repeated")
    parser.add_argument("--ucx", help="only this UCX: system, wheel or a folder")
    parser.add_argument("--rounds", type=int, help="of every comparison (5, quick 3)")
    parser.add_argument("--output", help="file of the JSON lines (BUILD/bench/results.jsonl)")
    parser.add_argument("--list", action="store_true", help="name the cases")
    args = parser.parse_args()
    bench = Bench(args.build, args.quick, args.rounds)
    every = list(cases(bench))
    if args.list:
        print("\n".join(name for name, *_ in every))
        return
    unknown = set(args.case or ()) - {name for name, *_ in every}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))} (--list names them)")
    chosen = [c for c in every if (c[0] in args.case if args.case else not args.quick or c[3])]
    output = args.output or os.path.join(bench.build, "bench", "results.jsonl")
    missed = 0
    print(f"{'UCX':8} {'case':18} {'met':4} {'ratio (min .. max)':26} {'goal':26} measured")
    try:
        versions = find_ucx(bench, args.ucx)
    except Skip as reason:
        sys.exit(f"bench: {reason}")
    with open(output, "a", encoding="utf-8") as lines:
        for bench.ucx in versions:
            for name, function, options, _ in chosen:
                record = measure(bench, name, function, options)
                missed += record["met"] is False
                print(row(record), flush=True)
                print(json.dumps(record), file=lines, flush=True)
    print(f"\n{missed} missed; details in {output}")


if __name__ == "__main__":
    main()
