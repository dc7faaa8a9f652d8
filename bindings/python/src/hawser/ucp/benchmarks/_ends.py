"""What send_recv of UCX-Py and that of UCXX share: the options, the two ends, and the report."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import inspect
import os
import queue as queues
import statistics
import sys
from collections.abc import Callable
from typing import Any

from hawser.ucp._libs.utils import format_bytes, get_address, parse_bytes, print_key_value, print_separator
from hawser.ucp.utils import mp

# ---- Options ----


def _at_least(least: int, read: Callable[[str], int] = int) -> Callable[[str], int]:
    """A number that argparse refuses by its option if it is less, before there are any processes."""

    def number(text: str) -> int:
        try:
            given = read(text)
        except OverflowError as e:
            raise argparse.ArgumentTypeError(str(e)) from None
        if given < least:
            raise argparse.ArgumentTypeError(f"must be {least} or more")
        return given

    number.__name__ = read.__name__
    return number


def new_parser() -> argparse.ArgumentParser:
    """The options that both have."""
    parser = argparse.ArgumentParser(description="Round trips between two processes")
    add = parser.add_argument
    add(
        "-n", "--n-bytes", default="10 Mb", type=_at_least(0, parse_bytes), metavar="BYTES", help="message size (10 Mb)"
    )
    add("--n-iter", default=10, type=_at_least(1), metavar="N", help="round trips that count (10)")
    add("--n-warmup-iter", default=10, type=_at_least(0), metavar="N", help="round trips before (10)")
    add("-b", "--server-cpu-affinity", default=-1, type=int, metavar="N", help="CPU of the server (-1: any)")
    add("-c", "--client-cpu-affinity", default=-1, type=int, metavar="N", help="CPU of the client (-1: any)")
    add("-o", "--object_type", default="numpy", choices=["numpy", "cupy", "rmm"], help="memory of the messages (numpy)")
    add("-v", "--verbose", action="store_true", help="accepted; see --no-detailed-report")
    add("-s", "--server-address", default=None, metavar="IP", help="address of the server (get_address())")
    add("-d", "--server-dev", default=0, type=int, metavar="N", help="GPU of the server (0)")
    add("-e", "--client-dev", default=0, type=int, metavar="N", help="GPU of the client (0)")
    add("--reuse-alloc", action="store_true", help="receive into the same memory always")
    add("--cuda-profile", action="store_true", help="start and stop CUDA's profiler around the round trips")
    add("--rmm-init-pool-size", default=None, type=int, metavar="BYTES", help="of RMM (half of the GPU's memory)")
    add("--server-only", action="store_true", help="only the server")
    add("--client-only", action="store_true", help="only the client; needs --port")
    add("-p", "--port", default=None, type=int, help="port of the server (one that is free)")
    add("--enable-am", action="store_true", help="active messages in the place of tagged ones")
    add("--rmm-managed-memory", action="store_true", help="managed memory in RMM's pool")
    add("--no-detailed-report", action="store_true", help="no line for each round trip")
    add("--delay-progress", action="store_true", help="the core only: post before there is progress")
    add("--max-outstanding", default=32, type=int, metavar="N", help="with --delay-progress: sends and receives (32)")
    add("--error-handling", action=argparse.BooleanOptionalAction, default=True, help="of the endpoints")
    return parser


def parse(parser: argparse.ArgumentParser, argv: list[str] | None) -> argparse.Namespace:
    """What was given."""
    args = parser.parse_args(argv)
    if args.server_address is None:
        args.server_address = get_address()
    return args


def check(args: argparse.Namespace, client: Any, core: str, with_contention: tuple[str, ...]) -> None:
    """Raises RuntimeError for options that do not go together. core: the backend that makes progress by hand;
    with_contention: those that can tell how the GIL was fought for."""
    if args.cuda_profile and args.object_type == "numpy":
        raise RuntimeError("`--cuda-profile` needs `--object_type=cupy` or `--object_type=rmm`")
    if args.object_type != "numpy" and not client.has_cuda_support:
        raise RuntimeError(f"The backend {args.backend} does not support CUDA's memory")
    if args.delay_progress and args.backend != core:
        raise RuntimeError(f"`--delay-progress` needs `--backend={core}`")
    if args.report_gil_contention:
        if args.backend not in with_contention:
            raise RuntimeError(f"`--report-gil-contention` needs `--backend={'` or `'.join(with_contention)}`")
        if importlib.util.find_spec("gilknocker") is None:
            raise RuntimeError("`--report-gil-contention` needs gilknocker")
    if args.client_only and args.port is None:
        raise RuntimeError("`--client-only` needs `--port`")


# ---- The two ends ----


def _settle(args: argparse.Namespace, cpu: int, device: int) -> None:
    """Stay on one CPU (-1: any), and see one GPU only: the one of that number among those that are visible."""
    if cpu >= 0:
        os.sched_setaffinity(0, [cpu])
    if args.object_type != "numpy":
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        os.environ["CUDA_VISIBLE_DEVICES"] = visible[device] if device < len(visible) else str(device)


def _run(end: Any) -> None:
    if inspect.iscoroutinefunction(end.run):
        asyncio.run(end.run())
    else:
        end.run()


# Gives the classes of both ends, of the backend of a name.
Backends = Callable[[str], dict[str, Any]]


def serve(backends: Backends, queue: Any, args: argparse.Namespace) -> None:
    """The server's process; its port goes into the queue."""
    _settle(args, args.server_cpu_affinity, args.server_dev)
    _run(backends(args.backend)["server"](args, queue))


def measure(backends: Backends, queue: Any, port: int, server_address: str, args: argparse.Namespace) -> None:
    """The client, with its report."""
    _settle(args, args.client_cpu_affinity, args.client_dev)
    end = backends(args.backend)["client"](args, queue, server_address, port)
    _run(end)
    times = queue.get()
    assert len(times) == args.n_iter
    contention = queue.get() if args.report_gil_contention else None
    print("Roundtrip benchmark")
    print_separator("=")
    _print_settings(args)
    end.print_backend_specific_config()
    print_separator("=")
    _print_devices(args)
    print_separator("=")
    _print_times(args, times, contention)


# ---- The report ----


def _print_settings(args: argparse.Namespace) -> None:
    """UCXX's benchmark, which alone has messages of several buffers, says two things more."""
    of_ucxx = hasattr(args, "n_buffers")
    print_key_value("Iterations", args.n_iter)
    print_key_value("Bytes", format_bytes(args.n_bytes))
    if of_ucxx:
        print_key_value("Number of buffers", args.n_buffers)
    print_key_value("Object type", args.object_type)
    print_key_value("Reuse allocation", args.reuse_alloc)
    if of_ucxx:
        print_key_value("Backend", args.backend)


def _print_devices(args: argparse.Namespace) -> None:
    if args.object_type == "numpy":
        print_key_value("Device(s)", "CPU-only")
        for name, cpu in (("Server CPU", args.server_cpu_affinity), ("Client CPU", args.client_cpu_affinity)):
            print_key_value(name, cpu if cpu >= 0 else "affinity not set")
    else:
        print_key_value("Device(s)", f"{args.server_dev}, {args.client_dev}")


def _print_times(args: argparse.Namespace, times: list[float], contention: float | None) -> None:
    """A round trip moves the message twice; its latency is that of one way."""
    n_bytes = args.n_bytes * getattr(args, "n_buffers", 1)

    def bandwidth(seconds: float) -> str:
        return f"{format_bytes(2 * n_bytes / seconds)}/s"

    def latency(seconds: float) -> int:
        return int(seconds * 1e9 / 2)

    average, median = statistics.mean(times), statistics.median(times)
    print_key_value("Bandwidth (average)", bandwidth(average))
    print_key_value("Bandwidth (median)", bandwidth(median))
    print_key_value("Latency (average)", f"{latency(average)} ns")
    print_key_value("Latency (median)", f"{latency(median)} ns")
    if contention is not None:
        print_key_value("GIL contention", contention)
    if not args.no_detailed_report:
        print_separator("=")
        print_key_value("Iterations", "Bandwidth, Latency")
        print_separator("-")
        for i, seconds in enumerate(times):
            print_key_value(str(i), f"{bandwidth(seconds)}, {latency(seconds)}ns")


# ---- Both ----


class _Announced:
    """The queue of a server without a client here: what it puts is its port."""

    def __init__(self, address: str) -> None:
        self._address = address

    def put(self, port: int) -> None:
        print(f"Server Running at {self._address}:{port}", flush=True)


def _port_of(process: Any, ports: Any) -> int:
    """The port that the server's process listens at."""
    while True:
        try:
            return int(ports.get(timeout=0.2))
        except queues.Empty:
            if not process.is_alive():
                sys.exit("the server ended before it listened")


def run_ends(args: argparse.Namespace, server: Callable[..., None], client: Callable[..., None]) -> None:
    """Run one or both ends. server, client: functions of a module, as a process is started with the first."""

    def connect(port: int) -> None:
        print(f"Client connecting to server at {args.server_address}:{port}", flush=True)
        client(queues.Queue(), port, args.server_address, args)

    if args.client_only:
        connect(args.port)
        return
    if args.server_only:
        server(_Announced(args.server_address), args)
        return
    ports = mp.Queue()
    # A daemon: it does not outlive a client that fails.
    process = mp.Process(target=server, args=(ports, args), daemon=True)
    process.start()
    port = _port_of(process, ports)
    _Announced(args.server_address).put(port)
    connect(port)
    process.join()
    if process.exitcode:
        sys.exit("the server failed")
