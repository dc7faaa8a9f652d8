"""Every case with its goal: the list that run.py goes through."""

from against_raw import asleep, latency, plan, rate
from harness import MIB
from own_programs import (
    allocations,
    credits,
    idle,
    instructions,
    memory,
    multi,
    second_thread,
    thousand,
    thousands,
    two_threads,
)
from through_python import (
    python_asleep,
    python_calls,
    python_latency,
    python_pair,
    python_peers,
    python_streams,
)


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
    yield "thousands-tcp", thousands, (), True
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
