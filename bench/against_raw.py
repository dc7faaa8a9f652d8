"""Cases that `hawser perf --compare` measures: in turns with ucx_perftest of the same UCX.

A case gives what was measured, the ratio or None, the goal, whether it is met, and details for the record.
"""

import statistics

from harness import MIB, at_least


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
        return at_least(limit, f"{mine / scale:.2f} {unit}, raw {raw / scale:.2f}", ratio, result)

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
        return at_least(limit, f"{mine * MIB / 1e9:.2f} GB/s, raw puts {raw * MIB / 1e9:.2f}", ratio, result)

    return case
