"""The options of cudf_merge, and the commands that pass them on to other hosts."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from typing import Any

from hawser.ucp._libs.utils import get_address


def parse_args(argv: list[str] | None = None, api: str = "hawser.ucp") -> argparse.Namespace:
    """The options of UCX-Py's benchmark, which are UCXX's too. api: the package whose benchmark it is."""
    parser = argparse.ArgumentParser(description="A distributed join of two cuDF tables")
    add = parser.add_argument
    add("--chunks-per-dev", default=1, type=int, metavar="N", help="chunks, and so workers, of each GPU (1)")
    add("-d", "--devs", default="0", metavar="LIST", help="GPUs of this host, as 0,1 (0)")
    add("-l", "--listen-address", default=None, metavar="IP", help="accepted; the server tells get_address()")
    add("-c", "--chunk-size", default=4, type=int, metavar="N", help="rows of a chunk (4)")
    add("--frac-match", default=0.3, type=float, metavar="FRAC", help="fraction of the rows that match (0.3)")
    add("--profile", default=None, metavar="FILE", help="profile of each worker, to FILE.RANK")
    add("--cuda-profile", action="store_true", help="start and stop CUDA's profiler around the iterations")
    add("--rmm-init-pool-size", default=None, type=int, metavar="BYTES", help="of RMM (half of the GPU's memory)")
    add("--collect-garbage", action="store_true", help="collect Python's garbage after each iteration")
    add("--iter", default=1, type=int, metavar="N", help="iterations that count (1)")
    add("--warmup-iter", default=5, type=int, metavar="N", help="iterations before (5)")
    several = parser.add_argument_group("several hosts, each started by hand")
    add = several.add_argument
    add("--server", action="store_true", help="only the server, which introduces the workers and reports")
    add("--server-file", default=None, metavar="FILE", help="where the server writes, and workers read, its address")
    add("--server-address", default=None, metavar="HOST:PORT", help="where workers find the server")
    add("--num-workers", default=None, type=int, metavar="N", help="workers of all hosts: devices times chunks")
    add("--node-idx", default=None, type=int, metavar="N", help="which host this is, from 0")
    ssh = parser.add_argument_group("several hosts over SSH")
    add = ssh.add_argument
    add("--hosts", default=None, metavar="LIST", help="the server's host, then those of the workers: a,a,b; asyncssh")
    add("--print-commands-only", action="store_true", help="with --hosts: say what to run where, and run nothing")
    args = parser.parse_args(argv)
    args.api = api
    if args.listen_address is None:
        args.listen_address = get_address()
    if args.hosts:
        _check_hosts(args)
    else:
        _settle(args)
    return args


def _check_hosts(args: argparse.Namespace) -> None:
    if importlib.util.find_spec("asyncssh") is None:
        raise RuntimeError("`--hosts` needs asyncssh")
    if args.server or args.num_workers is not None or args.node_idx is not None:
        raise RuntimeError("`--hosts` sets `--server`, `--num-workers` and `--node-idx` itself")
    if args.server_file and not args.print_commands_only:
        raise RuntimeError("`--server-file` goes with `--hosts` only if there is `--print-commands-only`")


def _settle(args: argparse.Namespace) -> None:
    """Work out how many workers there are, here and in all, and where their server is."""
    args.devs = [int(device) for device in args.devs.split(",")]
    args.num_node_workers = len(args.devs) * args.chunks_per_dev
    args.n_chunks = args.num_node_workers
    if args.server or args.server_file or args.server_address:
        if args.server_address:
            host, _, port = args.server_address.rpartition(":")
            args.server_address = {"address": host, "port": int(port)}
        args.server_info = args.server_file or args.server_address
        if args.num_workers is None:
            raise RuntimeError("Several hosts need `--num-workers`")
        if args.num_workers < 2:
            raise RuntimeError("Several hosts need at least two workers: `--num-workers`")
        if not args.server and args.node_idx is None:
            raise RuntimeError("The workers of a host need `--node-idx`")
        args.n_chunks = args.num_workers
    if args.n_chunks < 2:
        raise RuntimeError(f"There must be two chunks: {len(args.devs)} devices, {args.chunks_per_dev} chunks on each")


# ---- Commands for other hosts ----


def _command(args: argparse.Namespace, options: dict[str, Any], *flags: str) -> str:
    # Without the distribution hawser-ucp there is no `ucp` to run, and who has UCXX itself has another `ucxx`.
    package = "ucp" if args.api == "hawser.ucp" and importlib.util.find_spec("ucp") is not None else args.api
    words = [sys.executable, "-m", f"{package}.benchmarks.cudf_merge", *flags]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    return shlex.join(words)


def _shared(args: argparse.Namespace, num_workers: int) -> dict[str, Any]:
    return {
        "devs": args.devs,
        "chunks-per-dev": args.chunks_per_dev,
        "chunk-size": args.chunk_size,
        "frac-match": args.frac_match,
        "iter": args.iter,
        "warmup-iter": args.warmup_iter,
        "num-workers": num_workers,
    }


def _get_server_command(args: argparse.Namespace, num_workers: int) -> str:
    """What runs the server."""
    return _command(args, _shared(args, num_workers), "--server")


def _get_worker_command_without_address(args: argparse.Namespace, num_workers: int, node_idx: int) -> str:
    """What runs the workers of one host, but for where their server is."""
    options = {**_shared(args, num_workers), "node-idx": node_idx}
    if args.rmm_init_pool_size:
        options["rmm-init-pool-size"] = args.rmm_init_pool_size
    if args.profile:
        options["profile"] = args.profile
    flags = ["--cuda-profile"] * args.cuda_profile + ["--collect-garbage"] * args.collect_garbage
    return _command(args, options, *flags)


def _get_worker_command(server_info: dict[str, Any], args: argparse.Namespace, num_workers: int, node_idx: int) -> str:
    """What runs the workers of one host."""
    command = _get_worker_command_without_address(args, num_workers, node_idx)
    return f"{command} --server-address {server_info['address']}:{server_info['port']}"


def print_commands(args: argparse.Namespace, server_host: str, worker_hosts: list[str], num_workers: int) -> None:
    """Say what to run on which host."""
    print(f"[{server_host}] Server command line: {_get_server_command(args, num_workers)}")
    server = "--server-address 'REPLACE WITH SERVER ADDRESS'"
    if args.server_file:
        server = f"--server-file '{args.server_file}'"
    for node_idx, host in enumerate(worker_hosts):
        command = _get_worker_command_without_address(args, num_workers, node_idx)
        print(f"[{host}] Worker command line: {command} {server}")
