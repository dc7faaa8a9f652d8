"""Round trips between two processes: python -m ucp.benchmarks.send_recv --help"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import queue
import statistics
import sys
from typing import Any

from hawser.ucp._libs.utils import (
    format_bytes,
    format_time,
    get_address,
    parse_bytes,
    print_key_value,
    print_separator,
)
from hawser.ucp.benchmarks.backends import BACKENDS

mp = multiprocessing.get_context("spawn")


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The options of UCX-Py's benchmark."""
    parser = argparse.ArgumentParser(description="Round trips between two processes")
    add = parser.add_argument
    add("-n", "--n-bytes", default="10 Mb", type=parse_bytes, help="message size (10 Mb)")
    add("--n-iter", default=10, type=int, help="round trips that count (10)")
    add("--n-warmup-iter", default=10, type=int, help="round trips before (10)")
    add("-b", "--server-cpu-affinity", default=-1, type=int, metavar="N", help="CPU of the server (-1: any)")
    add("-c", "--client-cpu-affinity", default=-1, type=int, metavar="N", help="CPU of the client (-1: any)")
    add("-o", "--object_type", default="numpy", choices=["numpy", "cupy", "rmm"])
    add("-v", "--verbose", action="store_true", help="every round trip")
    add("-s", "--server-address", default=None, help="address of the server (get_address())")
    add("-d", "--server-dev", default="0", help="GPU of the server")
    add("-e", "--client-dev", default="0", help="GPU of the client")
    add("--reuse-alloc", action="store_true", help="receive into the same memory always")
    add("--cuda-profile", action="store_true")
    add("--rmm-init-pool-size", default=None, type=int)
    add("--server-only", action="store_true", help="only the server")
    add("--client-only", action="store_true", help="only the client")
    add("-p", "--port", default=None, type=int, help="port of the server")
    add("--enable-am", action="store_true", help="active messages")
    add("--rmm-managed-memory", action="store_true")
    add("--no-detailed-report", action="store_true", help="no line for each round trip")
    add("-l", "--backend", default="ucp-async", choices=sorted(BACKENDS))
    add("--report-gil-contention", action="store_true", help="needs gilknocker")
    add("--delay-progress", action="store_true", help="ucp-core only: post before there is progress")
    add("--max-outstanding", default=32, type=int, metavar="N", help="with --delay-progress: sends and receives (32)")
    add("--error-handling", action=argparse.BooleanOptionalAction, default=True)
    args = parser.parse_args(argv)
    if args.server_address is None:
        args.server_address = get_address()
    if args.client_only and args.port is None:
        parser.error("--client-only needs --port")
    if args.backend == "tornado" and args.object_type != "numpy":
        parser.error("tornado sends host memory only")
    if args.delay_progress and (args.backend != "ucp-core" or args.enable_am):
        parser.error("--delay-progress is for tagged messages of ucp-core")
    if args.object_type == "rmm":
        import rmm

        rmm.reinitialize(
            pool_allocator=True,
            managed_memory=args.rmm_managed_memory,
            initial_pool_size=args.rmm_init_pool_size,
        )
    return args


def pin(cpu: int) -> None:
    """Stay on one CPU; -1: anywhere."""
    if cpu >= 0:
        os.sched_setaffinity(0, [cpu])


def serve(args: argparse.Namespace, ports: Any) -> None:
    """The server's process."""
    pin(args.server_cpu_affinity)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", args.server_dev)
    BACKENDS[args.backend][0](args, ports.put)


def report(args: argparse.Namespace, times: list[float]) -> None:
    """Bandwidth and latency: average and median."""
    times = times[args.n_warmup_iter :]
    average, median = statistics.mean(times), statistics.median(times)
    print("Roundtrip benchmark")
    print_separator("=")
    for key, value in (
        ("Iterations", args.n_iter),
        ("Bytes", format_bytes(args.n_bytes)),
        ("Object type", args.object_type),
        ("Reuse allocation", args.reuse_alloc),
        ("Backend", args.backend),
        ("Transfer API", "AM" if args.enable_am else "TAG"),
        ("UCX_TLS", os.environ.get("UCX_TLS", "all")),
    ):
        print_key_value(key, value)
    print_separator("=")
    print_key_value("Bandwidth (average)", f"{format_bytes(2 * args.n_bytes / average)}/s")
    print_key_value("Bandwidth (median)", f"{format_bytes(2 * args.n_bytes / median)}/s")
    print_key_value("Latency (average)", f"{round(average * 1e9 / 2)} ns")
    print_key_value("Latency (median)", f"{round(median * 1e9 / 2)} ns")
    if not args.no_detailed_report or args.verbose:
        print_separator("=")
        print_key_value("Iterations", "Bandwidth, Latency")
        print_separator("-")
        for i, t in enumerate(times):
            print_key_value(str(i), f"{format_bytes(2 * args.n_bytes / t)}/s, {format_time(t / 2)}")


def port_of(process: Any, ports: Any) -> int:
    """The port that the server's process listens at."""
    while True:
        try:
            return int(ports.get(timeout=0.2))
        except queue.Empty:
            if not process.is_alive():
                sys.exit("the server ended before it listened")


def main(argv: list[str] | None = None) -> int:
    """Run one or both ends."""
    args = parse_args(argv)
    if args.server_only:
        pin(args.server_cpu_affinity)
        BACKENDS[args.backend][0](
            args, lambda port: print(f"Server running at {args.server_address}:{port}", flush=True)
        )
        return 0
    process, port = None, args.port
    if not args.client_only:
        ports = mp.Queue()
        process = mp.Process(target=serve, args=(args, ports))
        process.start()
        port = port_of(process, ports)
    pin(args.client_cpu_affinity)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", args.client_dev)
    report(args, BACKENDS[args.backend][1](args, port))
    if process is not None:
        process.join()
        return process.exitcode or 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
