"""Cases whose programs are in bench/: against Hawser itself used otherwise, by counting, or in bytes and seconds.

A case gives what was measured, the ratio or None, the goal, whether it is met, and details for the record.
"""

import os
import re
import shutil
import statistics
import tempfile
from pathlib import Path

from harness import MIB, Skip, at_least, at_most, spread


def two_threads(bench):
    base = [bench.program("hawser"), "perf", "-t", "tag_lat", "-s", 8, "-n", bench.count(200000), "--self", "--json"]
    ratios, rates = [], []
    for _ in range(bench.rounds):
        one, two = (bench.json([*base, "-T", n])["result"]["rate_overall"] for n in (1, 2))
        ratios.append(two / one)
        rates.append((one, two))
    one, two = (statistics.median(r[i] for r in rates) for i in (0, 1))
    ratio = spread(ratios)
    return at_least(1.2, f"{two / 1e6:.2f} M/s in all, one thread {one / 1e6:.2f}", ratio, {"rounds": rates})


def second_thread(bench):
    if len(os.sched_getaffinity(0)) < 2:
        raise Skip("needs two cores")
    runs = [bench.json([bench.program("bench", "second_thread"), bench.count(100000)]) for _ in range(bench.rounds)]
    added = spread([r["second_thread"]["p50_ns"] - r["manual"]["p50_ns"] for r in runs])
    manual, second = (statistics.median(r[k]["p50_ns"] for r in runs) for k in ("manual", "second_thread"))
    return (
        f"{added['median']:+.0f} ns ({added['min']:+.0f} to {added['max']:+.0f}); p50 {second:.0f} ns, manual "
        f"{manual:.0f}",
        None,
        "<= 2000 ns added",
        added["median"] <= 2000,
        {"added_ns": added, "runs": runs},
    )


def callgrind(bench, program, what, count, **environment):
    """Instructions inside measured(): all of them, and those of libhawser itself."""
    with tempfile.NamedTemporaryFile(prefix="hawser-callgrind-") as out:
        # Fair scheduling: a spinning thread would keep the one that makes the connection's worker from running.
        bench.run(
            [
                "valgrind",
                "--tool=callgrind",
                "--fair-sched=try",
                "--toggle-collect=measured",
                f"--callgrind-out-file={out.name}",
                program,
                what,
                count,
            ],
            **environment,
        )
        total = own = 0
        where, names, skip = "", {}, False
        for line in Path(out.name).read_text(encoding="utf-8", errors="replace").splitlines():
            match = re.match(r"(c?)ob=\((\d+)\)(?: (.*))?", line)
            if match:
                name = names.setdefault(match[2], (match[3] or "").strip())  # named where it comes first
                where = where if match[1] else name
            elif line.startswith("calls="):
                skip = True  # the next line is what the callee cost, counted where it was spent
            elif line[:1] in tuple("0123456789+-*"):
                cost = line.split()
                if not skip and len(cost) > 1 and "libhawser" in where:
                    own += int(cost[1])
                skip = False
            elif line.startswith("totals:"):
                total = int(line.split()[1])
    return total / count, own / count


def instructions(bench):
    if not shutil.which("valgrind"):
        raise Skip("valgrind is not installed")
    count, details, worst = 1000, {}, 0
    mine, raw = bench.program("bench", "instructions"), bench.program("bench", "raw_ucx_instructions")
    conditions = {
        "LD_LIBRARY_PATH": bench.ucx["path"],
        "UCX_TLS": "sysv,cma,self,tcp",
        "UCX_SYSV_ERROR_HANDLING": "y",
        "UCX_MM_ERROR_HANDLING": "y",
    }
    for what, operations in (("tag", 2), ("callback", 2), ("am", 1)):
        total, own = callgrind(bench, mine, what, count)
        yardstick, _ = callgrind(bench, raw, what, count, **conditions)
        added = (total - yardstick) / operations
        details[what] = {
            "hawser": total,
            "raw": yardstick,
            "added_per_operation": added,
            "in_libhawser": own / operations,
        }
        worst = max(worst, added)
    text = ", ".join(
        f"{what} +{d['added_per_operation']:.0f} ({d['in_libhawser']:.0f} in libhawser)" for what, d in details.items()
    )
    return text, None, "<= 100 an operation", worst <= 100, details


def allocations(bench):
    runs = bench.json([bench.program("bench", "allocs"), bench.count(2000)])
    own = sum(r["hawser"] for r in runs.values())
    every = sum(r["all"] for r in runs.values())
    operations = sum(r["operations"] for r in runs.values())
    return f"{own} by the library, {every} with UCX's, of {operations} operations", None, "0", own == 0, runs


def multi(what, goal):
    """Multi-buffer messages against one active message of as many bytes: the time of one message."""

    def case(bench, count, *options):
        rounds = bench.json([bench.program("bench", "multi"), what, bench.rounds, count, *options])["rounds"]
        am, many = (statistics.median(r[k] for r in rounds) for k in ("am_ns", "multi_ns"))
        if what != "bandwidth":
            ratio = spread([r["multi_ns"] / r["am_ns"] for r in rounds])
            return at_most(goal, f"{many:.0f} ns, one message {am:.0f}", ratio, {"rounds": rounds})
        ratio = spread([r["am_ns"] / r["multi_ns"] for r in rounds])
        mine, one = (64 * MIB / ns for ns in (many, am))
        return at_least(goal, f"{mine:.2f} GB/s, one message {one:.2f}", ratio, {"rounds": rounds})

    return case


def credits(bench, count, *options):
    program = bench.program("bench", "credits")
    rounds = []
    for _ in range(3):  # in each process the memory lies somewhere else
        for order in ((), ("swapped",)):
            rounds += bench.json([program, bench.rounds, count, *options, *order])["rounds"]
    on, off = (statistics.median(r[k] for r in rounds) for k in ("on", "off"))
    ratio = spread([r["on"] / r["off"] for r in rounds])
    text = f"{on / 1e6:.2f} M/s, without {off / 1e6:.2f}"
    return at_least(0.95, text, ratio, {"rounds": rounds})


def connections(bench, *arguments):
    return bench.json([bench.program("bench", "connections"), *arguments], timeout=1800)


def idle(bench):
    seconds = 3 if bench.quick else 10
    r = connections(bench, 100, 1000, seconds, 0, 5)
    worst = max(r[side]["idle_cpu_percent"] for side in ("client", "server"))
    text = f"client {r['client']['idle_cpu_percent']:.3f} %, server {r['server']['idle_cpu_percent']:.3f} % of a core"
    return text, None, "<= 0.2 % of a core", worst <= 0.2, r


def memory(bench):
    r = connections(bench, 50, 0, 0, 0, 50)
    worst = max(r[side]["pss_per_connection"] for side in ("client", "server"))
    p50 = r["connect_ns"]["p50"] / 1e6
    client, server = (r[side]["pss_per_connection"] / 1e6 for side in ("client", "server"))
    text = (
        f"{client:.2f} MB client, {server:.2f} MB server, {r['server']['fds_per_connection']:.1f} fds; "
        f"connect p50 {p50:.2f} ms"
    )
    return text, None, "<= 1.5 MB, <= 3 ms", worst <= 1.5e6 and p50 <= 3, r


def thousand(bench):
    count = 200 if bench.quick else 1000
    r = connections(bench, count, 0, 0, bench.count(20000), 1)
    lone, crowded = r["half_round_trip_ns"]["lone"], r["half_round_trip_ns"]["crowded"]
    ratio = spread([crowded / lone])
    by_tcp = max(r[side]["fallbacks"] for side in ("client", "server"))  # the side that had no room counts it
    text = (
        f"{r['connections']} of {count}; {r['server']['isolated']} isolated, {by_tcp} by TCP; "
        f"{r['server']['pss_per_connection'] / 1e6:.2f} MB, {r['server']['fds_per_connection']:.1f} fds each; "
        f"active one {crowded} ns, lone {lone}"
    )
    return text, ratio, "all, active <= 1.5", r["connections"] == count and ratio["median"] <= 1.5, r


def thousands(bench):
    """Over TCP, where one process has many: the last ones cost what the first ones did."""
    count = 1000 if bench.quick else 4000
    ratios, runs = [], []
    for _ in range(3):
        r = connections(bench, count, 0, 0, 0, 0, "tcp")
        runs.append(r)
        ratios.append(r["connect_ns"]["last_fifth"] / r["connect_ns"]["first_fifth"])
    first, last = (statistics.median(r["connect_ns"][k] for r in runs) / 1e6 for k in ("first_fifth", "last_fifth"))
    text = f"connect {last:.2f} ms among {count}, {first:.2f} among the first fifth"
    return at_most(1.5, text, spread(ratios), {"runs": runs})
