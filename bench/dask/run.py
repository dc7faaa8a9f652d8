"""Dask over tcp://, ucx:// (Hawser) and ucxx:// (distributed-ucxx, if it is installed), in one run: run.py [CASE...]

Each protocol has a cluster of its own; rounds alternate between them. One line of JSON for each case and protocol: the
median of the rounds, its ratio to tcp (above 1: faster), and what the workers spent on fetching from each other. --html
writes a report with plots.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import sys
from collections.abc import Callable, Iterable
from typing import Any

import cases
from clusters import clusters, protocols
from dask.distributed import Client

MIB = 1 << 20


def plan(args: argparse.Namespace) -> dict[str, list[tuple[str, int | None, Callable[[Client], cases.Round]]]]:
    """For each case its variants: a name, the bytes that move if that is known, and what makes a round."""
    p = functools.partial
    x, t = ("cupy", "cudf") if args.gpu else ("numpy", "pandas")
    on = " (GPU)" if args.gpu else ""
    return {
        "rpc": [("rpc 1 kB", None, cases.rpc)],
        "sendrecv": [
            (f"send/recv {n} MiB{on}", n * MIB, p(cases.send_recv, size=n * MIB, arrays=x)) for n in args.messages
        ],
        "fetch": [(f"fetch {n} MiB{on}", n * MIB, p(cases.fetch, size=n * MIB, arrays=x)) for n in args.sizes],
        "transpose": [(f"transpose sum {n}{on}", None, p(cases.transpose, n=n, arrays=x)) for n in args.sides],
        "svd": [(f"svd {n}{on}", None, p(cases.svd, n=n, arrays=x)) for n in args.svd],
        "rechunk": [
            (f"rechunk {m} {args.rechunk}{on}", None, p(cases.rechunk, n=args.rechunk, method=m, arrays=x))
            for m in METHODS
        ],
        "shuffle": [(f"shuffle {m}{on}", None, p(cases.shuffle, rows=args.rows, method=m, tables=t)) for m in METHODS],
        "merge": [(f"merge{on}", None, p(cases.merge, rows=args.rows, tables=t))],
    }


def cannot(case: str, gpu: bool) -> str | None:
    """Why a case cannot run here, or None."""
    if case == "rpc":
        return None
    tables = case in ("shuffle", "merge")
    return cases.missing("cupy" if gpu else "numpy", ("cudf" if gpu else "pandas") if tables else None)


METHODS = ("p2p", "tasks")


def transferred(client: Client) -> float:
    """Seconds that the workers spent on fetching from each other so far, summed."""

    def seconds(dask_worker: Any) -> float:
        return sum(entry["duration"] for entry in dask_worker.transfer_incoming_log)

    return sum(client.run(seconds).values())


def alternate(
    rounds: dict[str, cases.Round], clients: dict[str, Client], n: int
) -> dict[str, list[tuple[float, float]]]:
    """n rounds of each after one that does not count: seconds, and the workers' seconds of fetching."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in rounds}
    for i in range(n + 1):
        for name, one in rounds.items():
            before = transferred(clients[name])
            seconds = one()
            if i > 0:
                found[name].append((seconds, transferred(clients[name]) - before))
    return found


def lines(case: str, found: dict[str, list[tuple[float, float]]], size: int | None) -> Iterable[dict[str, Any]]:
    medians = {name: statistics.median(s for s, _ in samples) for name, samples in found.items()}
    fetching = {name: statistics.median(s for _, s in samples) for name, samples in found.items()}
    for name, samples in found.items():
        seconds = [s for s, _ in samples]
        line = {"bench": "dask", "case": case, "protocol": name, "rounds": len(samples)}
        line |= {"seconds": round(medians[name], 7), "min": round(min(seconds), 7), "max": round(max(seconds), 7)}
        if size is not None:
            line["GB_s"] = round(size / medians[name] / 1e9, 3)
        if fetching[name] > 0:
            line["transfer_seconds"] = round(fetching[name], 4)
        if "tcp" in medians:
            line["ratio_to_tcp"] = round(medians["tcp"] / medians[name], 2)
            if fetching[name] > 0 and fetching["tcp"] > 0:
                line["transfer_to_tcp"] = round(fetching[name] / fetching["tcp"], 2)
        yield line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "cases", nargs="*", help="rpc, sendrecv, fetch, transpose, svd, rechunk, shuffle, merge; or all"
    )
    parser.add_argument("--protocols", nargs="*", default=list(protocols()), help="of tcp, ucx, ucxx")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--messages", type=int, nargs="*", default=[1, 64], metavar="MIB")
    parser.add_argument("--sizes", type=int, nargs="*", default=[8, 128, 1024], metavar="MIB")
    parser.add_argument("--sides", type=int, nargs="*", default=[8000, 16000], metavar="N")
    parser.add_argument("--svd", type=int, nargs="*", default=[10000], metavar="N")
    parser.add_argument("--rechunk", type=int, default=6000, metavar="N")
    parser.add_argument("--rows", type=int, default=4_000_000, help="of the tables of shuffle and merge")
    parser.add_argument("--gpu", action="store_true", help="arrays of CuPy, tables of cuDF, on each worker's GPU")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--html", metavar="FILE", help="write a report with plots")
    args = parser.parse_args()
    variants = plan(args)
    chosen = args.cases or list(variants)
    if wrong := set(chosen) - set(variants):
        parser.error(f"no case {', '.join(sorted(wrong))}")
    for case in chosen.copy():
        if why := cannot(case, args.gpu):
            print(f"skipped: {case}: {why}", file=sys.stderr)
            chosen.remove(case)
    for name, why in protocols().items():
        if why and name in args.protocols:
            print(f"skipped: {name}: {why}", file=sys.stderr)
            args.protocols.remove(name)
    if not chosen:
        return
    todo = [variant for case in chosen for variant in variants[case]]
    results = []
    with clusters(args.protocols, args.workers, args.threads, args.gpu) as clients:
        for i, (case, size, make) in enumerate(todo):
            if sys.stderr.isatty():
                print(f"\r[{'#' * i}{'.' * (len(todo) - i)}] {case:30}", end="", file=sys.stderr, flush=True)
            found = alternate({name: make(client) for name, client in clients.items()}, clients, args.rounds)
            gc.collect()
            for line in lines(case, found, size):
                results.append(line)
                print(("\r\033[K" if sys.stderr.isatty() else "") + json.dumps(line), flush=True)
        if args.html:
            import report

            report.write(args.html, results, clients)
            print(f"report: {args.html}", file=sys.stderr)


if __name__ == "__main__":
    main()
