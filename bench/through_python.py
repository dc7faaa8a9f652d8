"""Cases whose programs are in bench/python: what Python adds, and what others of its ways take.

A case gives what was measured, the ratio or None, the goal, whether it is met, and details for the record.
"""

import importlib.util
import json
import math
import os
import statistics
import sys

from harness import Skip, at_least, spread


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
    return at_least(100, f"{mine * 1e9:.0f} ns, streams {streams * 1e6:.1f} us", ratio, seconds)


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
        return at_least(goal, f"{here:.3g} {unit}, {other} {there:.3g}", ratio, {"rounds": rounds})

    return case
