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
import importlib.util
import json
import math
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20


class Skip(Exception):
    """The case cannot be run here; the text says why."""


class Bench:
    """Where the programs are, how hard to try, and which UCX is under test."""

    def __init__(self, build, quick, rounds):
        self.build, self.quick = os.path.abspath(build), quick
        self.rounds = rounds or (3 if quick else 5)
        self.ucx = None

    def program(self, *parts):
        path = os.path.join(self.build, *parts)
        if not os.access(path, os.X_OK):
            raise Skip(f"{path} is not built")
        return path

    def count(self, full):
        return max(10, full // 10) if self.quick else full

    def environment(self, **more):
        return {**os.environ, "HAWSER_UCX": self.ucx["path"], **more}

    def run(self, command, timeout=900, **environment):
        run = subprocess.run(
            [str(c) for c in command],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self.environment(**environment),
        )
        if run.returncode:
            said = run.stderr.strip()[-400:]
            raise RuntimeError(f"{' '.join(map(str, command))} ended with {run.returncode}: {said}")
        return run.stdout

    def json(self, command, timeout=900):
        return json.loads(self.run(command, timeout))

    def compare(self, *options, times=1):
        return self.json([self.program("hawser"), "perf", "--json", "--compare", self.rounds * times, *options])


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


# ---- cases: each returns what was measured, the ratio or None, the goal, met or not, details ----


def latency(limit, added=None, times=1):
    """Half a round trip of 8 bytes against ucx_perftest: a ratio, or so many ns added."""

    def case(bench, *options):
        result = bench.compare("-s", 8, "--percentiles", *options, times=times)
        ratio, more = result["ratio_percentile"], result["added_percentile_ns"]
        goal = f"<= {limit}" + (f" or <= {added} ns added" if added else "")
        met = ratio["median"] <= limit or (added is not None and more["median"] <= added)
        ranks = result["percentiles"]
        text = "  ".join(f"{name} {ranks[name]['hawser_us']:.3f}/{ranks[name]['raw_us']:.3f}" for name in ranks)
        return f"{more['median']:+.0f} ns; us, hawser/raw: {text}", ratio, goal, met, result

    return case


def asleep(bench, *options):
    """Both sides told to sleep, against ucx_perftest -E sleep. In a ping-pong neither waits long enough to do so;
    with a pause before each ping the server does, so that figure stands beside it (ucx_perftest cannot pause)."""
    text, ratio, goal, met, result = latency(1.2)(bench, *options)
    again = [option for i, option in enumerate(options) if option != "-n" and (i == 0 or options[i - 1] != "-n")]
    paused = bench.json(
        [
            bench.program("hawser"),
            "perf",
            "--self",
            "--json",
            "--percentiles",
            "-s",
            8,
            "-n",
            bench.count(2000),
            "-w",
            50,
            "--pause",
            2000,
            *again,
        ]
    )["result"]
    result["paused"] = paused
    return f"{text}; after a pause p50 {paused['percentiles_us']['p50']:.1f} us", ratio, goal, met, result


def rate(limit, figure, times=1):
    """Messages or bytes a second against ucx_perftest, in so many times the rounds."""

    def case(bench, *options):
        result = bench.compare(*options, times=times)
        ratio = result["ratio"]
        mine, raw = (statistics.median(r[side][figure] for r in result["rounds"]) for side in ("hawser", "raw"))
        unit, scale = ("M/s", 1e6) if figure == "rate_overall" else ("GB/s", 1e9 / MIB)
        return (
            f"{mine / scale:.2f} {unit}, raw {raw / scale:.2f}",
            ratio,
            f">= {limit}",
            ratio["median"] >= limit,
            result,
        )

    return case


def plan(limit):
    """A plan against ucx_perftest's loop of as many puts with one flush at the end: bytes a second.

    What ucx_perftest counts as iterations are puts, here they are plans."""

    def case(bench, *options):
        result = bench.compare("-t", "plan_bw", *options)
        mine, raw = (
            statistics.median(r[side]["bandwidth_overall"] for r in result["rounds"]) for side in ("hawser", "raw")
        )
        ratio = result["ratio"]
        return (
            f"{mine * MIB / 1e9:.2f} GB/s, raw puts {raw * MIB / 1e9:.2f}",
            ratio,
            f">= {limit}",
            ratio["median"] >= limit,
            result,
        )

    return case


def two_threads(bench):
    base = [bench.program("hawser"), "perf", "-t", "tag_lat", "-s", 8, "-n", bench.count(200000), "--self", "--json"]
    ratios, rates = [], []
    for _ in range(bench.rounds):
        one, two = (bench.json([*base, "-T", n])["result"]["rate_overall"] for n in (1, 2))
        ratios.append(two / one)
        rates.append((one, two))
    one, two = (statistics.median(r[i] for r in rates) for i in (0, 1))
    ratio = spread(ratios)
    return (
        f"{two / 1e6:.2f} M/s in all, one thread {one / 1e6:.2f}",
        ratio,
        ">= 1.2",
        ratio["median"] >= 1.2,
        {"rounds": rates},
    )


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
            return (
                f"{many:.0f} ns, one message {am:.0f}",
                ratio,
                f"<= {goal}",
                ratio["median"] <= goal,
                {"rounds": rounds},
            )
        ratio = spread([r["am_ns"] / r["multi_ns"] for r in rounds])
        mine, one = (64 * MIB / ns for ns in (many, am))
        return (
            f"{mine:.2f} GB/s, one message {one:.2f}",
            ratio,
            f">= {goal}",
            ratio["median"] >= goal,
            {"rounds": rounds},
        )

    return case


def python(bench):
    """The Python that has hawser: HAWSER_BENCH_PYTHON, this one, or that of .venv beside the build."""
    if "HAWSER_BENCH_PYTHON" in os.environ:
        return os.environ["HAWSER_BENCH_PYTHON"]
    if importlib.util.find_spec("hawser") is not None:
        return sys.executable
    beside = os.path.join(os.path.dirname(bench.build), ".venv", "bin", "python")
    if not os.access(beside, os.X_OK):
        raise Skip(f"hawser is not installed for {sys.executable}, and there is no {beside}")
    return beside


def python_program(bench, name, *arguments):
    """What a program of bench/python printed."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python", f"{name}.py")
    return json.loads(bench.run([python(bench), program, *arguments], UCX_WARN_UNUSED_ENV_VARS="n"))


def python_calls(bench):
    """One call of the C library from Python: the module made by SWIG against the handwritten extension."""
    rounds = python_program(bench, "calls", bench.rounds, bench.count(1000000))["rounds"]
    ns = {way: statistics.median(r[way] for r in rounds) for way in rounds[0]}
    ratio = spread([r["swig"] / r["extension"] for r in rounds])
    text = ", ".join(f"{way} {ns[way]:.0f}" for way in ns) + " ns a call"
    if "cffi" not in ns:
        text += "; cffi is not installed"
    return text, ratio, "swig < ctypes", ns["swig"] < ns["ctypes"], {"rounds": rounds}


def python_pingpong(bench, count, *options):
    """Seconds of half a round trip of 8 bytes, a value a round, by way."""
    common = ("--json", "--build", bench.build, "--rounds", bench.rounds, "--count", bench.count(count))
    return python_program(bench, "pingpong", *common, *options)["seconds"]


def python_latency(limit, added):
    """Half a round trip of 8 bytes through Python against raw UCX."""

    def case(bench, way):
        seconds = python_pingpong(bench, 200000, "--way", way)
        raw, mine = (statistics.median(seconds[k]) * 1e9 for k in ("raw", way))
        ratio = spread([m / r for m, r in zip(seconds[way], seconds["raw"], strict=True)])
        return (
            f"{mine:.0f} ns, raw {raw:.0f}, {mine - raw:+.0f} ns",
            ratio,
            f"<= {limit} or <= {added} ns added",
            ratio["median"] <= limit or mine - raw <= added,
            seconds,
        )

    return case


def python_streams(bench):
    """An awaited message against the same through asyncio's streams."""
    seconds = python_pingpong(bench, 200000, "--way", "await", "--way", "streams")
    ratio = spread([s / a for a, s in zip(seconds["await"], seconds["streams"], strict=True)])
    mine, streams = (statistics.median(seconds[k]) for k in ("await", "streams"))
    return (f"{mine * 1e9:.0f} ns, streams {streams * 1e6:.1f} us", ratio, ">= 100", ratio["median"] >= 100, seconds)


# How many times as long others must take as which of ours.
PYTHON_PEERS = {
    "asyncio": (100, "hawser"),
    "pyzmq": (200, "hawser"),
    "mpi4py": (2, "hawser"),
    "ucxx": (40, "hawser"),
    "ucxx-sync": (10, "hawser-sync"),
}


def python_peers(bench):
    """A message awaited, or waited for, against the other ways between two processes of Python."""
    found = python_program(bench, "others", "--rounds", bench.rounds, "--seconds", 0.3 if bench.quick else 1)
    fastest = {}  # UCXX has several modes
    for way, times in found["seconds"].items():
        name = way.split()[0]
        fastest[name] = min(fastest.get(name, math.inf), statistics.median(times))
    texts, met = [f"{fastest['hawser'] * 1e9:.0f} ns, sync {fastest['hawser-sync'] * 1e9:.0f}"], True
    for name, (goal, mine) in PYTHON_PEERS.items():
        if name in fastest:
            ratio = fastest[name] / fastest[mine]
            met &= ratio >= goal
            texts.append(f"{name} {fastest[name] * 1e6:.2f} us ({ratio:.1f}x, goal {goal}x)")
    return "; ".join(texts + [f"not compared: {why}" for why in found["missing"]]), None, "each", met, found


def python_asleep(bench):
    """The other side waits 1 ms between messages: what Python adds to raw UCX that sleeps."""
    seconds = python_pingpong(bench, 2000, "--way", "await", "--pause", 0.001)
    raw, mine = (statistics.median(seconds[k]) * 1e6 for k in ("raw", "await"))
    return (f"{mine:.1f} us, raw {raw:.1f}, {mine - raw:+.1f} us", None, "<= 15 us added", mine - raw <= 15, seconds)


def python_pair(program, mine, other, goal, scale, unit):
    """Two rates in turns: `mine` of `program` against `other`."""

    def case(bench, *arguments):
        rounds = python_program(bench, program, "--rounds", bench.rounds, *arguments)["rounds"]
        ratio = spread([r[mine] / r[other] for r in rounds])
        here, there = (statistics.median(r[k] for r in rounds) / scale for k in (mine, other))
        return (
            f"{here:.3g} {unit}, {other} {there:.3g}",
            ratio,
            f">= {goal}",
            ratio["median"] >= goal,
            {"rounds": rounds},
        )

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
    return text, ratio, ">= 0.95", ratio["median"] >= 0.95, {"rounds": rounds}


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
    text = (
        f"{r['connections']} of {count}; {r['server']['isolated']} isolated, {r['client']['fallbacks']} by TCP; "
        f"{r['server']['pss_per_connection'] / 1e6:.2f} MB, {r['server']['fds_per_connection']:.1f} fds each; "
        f"active one {crowded} ns, lone {lone}"
    )
    return text, ratio, "all, active <= 1.5", r["connections"] == count and ratio["median"] <= 1.5, r


def cases(bench):
    """Name, function, its arguments, and whether --quick runs it too."""
    n = bench.count
    small, big = rate(0.95, "rate_overall"), rate(0.98, "bandwidth_overall")
    # Source and target together are as large as a core's second-level cache here: where the pages of a process lie
    # decides, by a fifth, and ucx_perftest against itself moves by 5 % in 9 rounds. Many short processes even it out.
    scattered = rate(0.98, "bandwidth_overall", times=16)
    for name, test in (("tag", "tag_lat"), ("am", "ucp_am_lat")):
        yield f"latency-{name}", latency(1.05, added=10), ("-t", test, "-n", n(1000000)), True
    yield "instructions", instructions, (), True
    yield "latency-thread", latency(1.15, added=30), ("-t", "tag_lat", "-n", n(1000000), "--mode", "thread"), True
    yield "two-threads", two_threads, (), True
    for name, test in (("tag", "tag_lat"), ("am", "ucp_am_lat")):
        yield f"latency-{name}-tcp", latency(1.05), ("-t", test, "-n", n(100000), "--tcp"), True
    yield "rate", small, ("-t", "tag_bw", "-s", 8, "-n", n(5000000)), True
    for over, one, option in (("", scattered, ()), ("-tcp", big, ("--tcp",))):
        yield f"bandwidth-1m{over}", one, ("-t", "tag_bw", "-s", MIB, "-n", n(5000), *option), True
        yield f"bandwidth-64m{over}", big, ("-t", "tag_bw", "-s", 64 * MIB, "-n", n(100), "-w", 5, *option), False
    # Bare remote memory access is so short that the pair of cores which a round got decides (40 to 190 ns a put).
    yield "put-8", latency(1.05, times=4), ("-t", "ucp_put_lat", "-n", n(1000000)), True
    for name, test in (("get-8", "ucp_get"), ("fetch-add-8", "ucp_fadd")):
        yield name, rate(0.952, "rate_overall", times=4), ("-t", test, "-s", 8, "-n", n(1000000)), True
    long = rate(0.98, "bandwidth_overall", times=3)
    for name, test in (("put", "ucp_put_bw"), ("get", "ucp_get")):
        yield f"{name}-1m", scattered, ("-t", test, "-s", MIB, "-n", n(5000)), True
        yield f"{name}-64m", long, ("-t", test, "-s", 64 * MIB, "-n", n(100), "-w", 5), False
    yield "plan-1000x4k", plan(0.98), ("-s", 4096, "-O", 1000, "-n", n(1000)), True
    for over, option in (("", ()), ("-tcp", ("tcp",))):
        yield f"credits{over}", credits, (n(1000000), *option), True
        yield f"multi-10x100{over}", multi("latency", 1.3), (n(50000), *option), True
        yield f"multi-10x100-read{over}", multi("read", 1.3), (n(50000), *option), True
        yield f"multi-64x1m{over}", multi("bandwidth", 0.9), (n(50), *option), True
    for mode in ("blocking", "thread"):
        for over, option in (("", ()), ("-tcp", ("--tcp",))):
            yield (
                f"asleep-{mode}{over}",
                asleep,
                ("-t", "tag_lat", "-n", n(100000), "-E", "sleep", "--mode", mode, *option),
                True,
            )
    yield "second-thread", second_thread, (), True
    yield "idle", idle, (), True
    yield "memory", memory, (), True
    yield "thousand", thousand, (), False
    yield "allocations", allocations, (), True
    yield "python-calls", python_calls, (), True
    yield "python-await", python_latency(1.4, 100), ("await",), True
    yield "python-sync", python_latency(1.4, 100), ("sync",), True
    yield "python-ucp", python_latency(2.5, 300), ("ucp",), True
    yield "python-streams", python_streams, (), True
    yield "python-peers", python_peers, (), True
    yield "python-asleep", python_asleep, (), True
    yield (
        "python-flight",
        python_pair("flight", "await", "streams", 20, 1e3, "thousand a second"),
        ("--each", n(1000)),
        True,
    )
    yield "python-idle", python_pair("idle", "with", "alone", 0.99, 1e6, "million a second"), (), True
    for name, size, count, window in (("1m", MIB, 5000, 16), ("64m", 64 * MIB, 100, 4)):
        yield (
            f"python-bandwidth-{name}",
            python_pair("bandwidth", "await", "raw", 0.95, 1e9, "GB/s"),
            ("--build", bench.build, "--size", size, "--count", n(count), "--window", window),
            True,
        )


# ---- the run ----


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
