"""A distributed join of two cuDF tables: python -m ucp.benchmarks.cudf_merge --help

Every worker has a chunk of each table. It splits them by a hash of the key, exchanges the bins with all the
others, and joins what has come to it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import gc
import json
import os
import pickle
import queue as queues
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from hawser.ucp._libs.utils import format_bytes, format_time, print_multi, print_separator
from hawser.ucp.benchmarks._merge_options import (
    _get_server_command,
    _get_worker_command,
    _get_worker_command_without_address,  # noqa: F401
    parse_args,
    print_commands,
)
from hawser.ucp.benchmarks.asyncssh import run_ssh_cluster
from hawser.ucp.benchmarks.utils import (
    _run_cluster_server,
    _run_cluster_workers,
    run_cluster_server,
    run_cluster_workers,
)
from hawser.ucp.utils import hmean

# Each worker chooses its GPU; RAPIDS would take the first one as it is imported.
os.environ["RAPIDS_NO_INITIALIZE"] = "True"
try:
    import cudf
    import cupy
    import rmm
    from rmm.allocators.cupy import rmm_cupy_allocator
except ImportError as e:
    raise ImportError(f"cudf_merge needs cupy, cudf and rmm: {e}") from e

_ROWS_TO_COUNT = 100_000  # Of a smaller chunk too few rows match for their number to be near its mean.
_MATCH_TOLERANCE = 0.02
_WIDTH = 110

# ---- Tables between workers ----


def sizeof_cudf_dataframe(df: Any) -> int:
    """The bytes of its columns and of its index."""
    return int(df.memory_usage(index=True).sum())


async def send_df(ep: Any, df: Any) -> None:
    """Send a table: the size of its header, the header, its frames of device memory."""
    header, frames = df.device_serialize()
    header["frame_ifaces"] = [frame.__cuda_array_interface__ for frame in frames]
    packed = pickle.dumps(header)
    await ep.send(np.array([len(packed)], dtype=np.uint64))
    await ep.send(packed)
    for frame in frames:
        await ep.send(frame)


async def recv_df(ep: Any) -> Any:
    """Receive what send_df() sends. Only from peers that are trusted: its header is unpickled."""
    size = np.empty(1, dtype=np.uint64)
    await ep.recv(size)
    packed = bytearray(int(size[0]))
    await ep.recv(packed)
    header = pickle.loads(packed)
    frames = [cupy.empty(iface["shape"], dtype=iface["typestr"]) for iface in header["frame_ifaces"]]
    for frame in frames:
        await ep.recv(frame)
    return cudf.DataFrame.device_deserialize(header, frames)


async def barrier(rank: int, eps: dict[int, Any]) -> None:
    """Rank 0 goes on when all the others are here; they do not wait."""
    if rank == 0:
        await asyncio.gather(*(ep.recv(np.empty(1, dtype="u1")) for ep in eps.values()))
    else:
        await eps[0].send(np.zeros(1, dtype="u1"))


async def send_bins(eps: dict[int, Any], bins: list[Any]) -> None:
    """Send everybody its bin."""
    await asyncio.gather(*(send_df(ep, bins[rank]) for rank, ep in eps.items()))


async def recv_bins(eps: dict[int, Any], bins: list[Any]) -> None:
    """Add to `bins` what everybody sends."""
    bins.extend(await asyncio.gather(*(recv_df(ep) for ep in eps.values())))


# ---- The join ----


async def exchange_and_concat_bins(
    rank: int, eps: dict[int, Any], bins: list[Any], timings: list[tuple[float, int]] | None = None
) -> Any:
    """All bins of this rank as one table. `timings` gets the seconds that it took, and the bytes that were sent."""
    own = [bins[rank]]
    start = time.monotonic()
    await asyncio.gather(recv_bins(eps, own), send_bins(eps, bins))
    if timings is not None:
        took = time.monotonic() - start
        timings.append((took, sum(sizeof_cudf_dataframe(b) for i, b in enumerate(bins) if i != rank)))
    return cudf.concat(own)


async def distributed_join(
    args: argparse.Namespace,
    rank: int,
    eps: dict[int, Any],
    left_table: Any,
    right_table: Any,
    timings: list[tuple[float, int]] | None = None,
) -> Any:
    """The part of the join that this rank works out."""
    left, right = [
        await exchange_and_concat_bins(rank, eps, table.partition_by_hash(["key"], args.n_chunks), timings)
        for table in (left_table, right_table)
    ]
    return left.merge(right, on="key")


def _matching_keys(i_chunk: int, local_size: int, num_chunks: int, frac_match: float) -> Any:
    """As many keys of each chunk of the build table; no other chunk takes the same ones."""
    share = local_size // num_chunks
    used = max(int(share * frac_match), 1)
    starts = (local_size * chunk + share * i_chunk for chunk in range(num_chunks))
    return cupy.concatenate([start + cupy.random.permutation(share)[:used] for start in starts]).astype("int64")


def generate_chunk(i_chunk: int, local_size: int, num_chunks: int, chunk_type: str, frac_match: float) -> Any:
    """A chunk of the table "build", whose keys are all different, or of "other", of whose rows a fraction match."""
    cupy.random.seed(42)
    if chunk_type == "build":
        keys = cupy.arange(local_size * i_chunk, local_size * (i_chunk + 1), dtype="int64")
    else:
        matching = _matching_keys(i_chunk, local_size, num_chunks, frac_match)
        behind = local_size * (num_chunks + i_chunk)  # where no chunk of the build table has a key
        others = cupy.arange(behind, behind + local_size - len(matching), dtype="int64")
        keys = cupy.random.permutation(cupy.concatenate([matching, others]))
    return cudf.DataFrame({"key": keys, "payload": cupy.arange(local_size, dtype="int64")})


# ---- A worker ----


@contextlib.contextmanager
def _profiled(args: argparse.Namespace, rank: int) -> Iterator[None]:
    if args.cuda_profile:
        cupy.cuda.profiler.start()
    profile = cProfile.Profile()
    if args.profile:
        profile.enable()
    yield
    if args.profile:
        profile.disable()
        profile.dump_stats(f"{args.profile}.{rank}")
    if args.cuda_profile:
        cupy.cuda.profiler.stop()


async def _iteration(
    args: argparse.Namespace, rank: int, eps: dict[int, Any], tables: list[Any]
) -> tuple[float, list[tuple[float, int]]]:
    """One join; gives its seconds, and the timings of its exchanges."""
    timings: list[tuple[float, int]] = []
    start = time.monotonic()
    joined = await distributed_join(args, rank, eps, tables[0], tables[1], timings)
    await barrier(rank, eps)
    took = time.monotonic() - start
    if args.chunk_size >= _ROWS_TO_COUNT:
        expected = args.chunk_size * args.frac_match
        assert abs(len(joined) - expected) <= expected * _MATCH_TOLERANCE, f"{len(joined)} rows match"
    del joined
    if args.collect_garbage:
        gc.collect()
    return took, timings


def _bandwidth(timings: list[tuple[float, int]]) -> float:
    return sum(size for _, size in timings) / sum(seconds for seconds, _ in timings)


async def worker(rank: int, eps: dict[int, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Measure the join on one GPU: bytes per second, and the seconds and bytes of all iterations and of each."""
    rmm.reinitialize(pool_allocator=True, initial_pool_size=args.rmm_init_pool_size)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    tables = [
        generate_chunk(rank, args.chunk_size, args.n_chunks, kind, args.frac_match) for kind in ("build", "other")
    ]
    processed = sum(len(table) * sum(dtype.itemsize for dtype in table.dtypes) for table in tables)
    for _ in range(args.warmup_iter):
        await _iteration(args, rank, eps, tables)
    with _profiled(args, rank):
        start = time.monotonic()
        done = [await _iteration(args, rank, eps, tables) for _ in range(args.iter)]
        took = time.monotonic() - start
    return {
        "bw": _bandwidth([timing for _, timings in done for timing in timings]),
        "wallclock": took,
        "throughput": args.n_chunks * processed * args.iter / took,
        "data_processed": processed * args.iter,
        "iter_results": {
            "bw": [_bandwidth(timings) for _, timings in done],
            "wallclock": [seconds for seconds, _ in done],
            "throughput": [args.n_chunks * processed / seconds for seconds, _ in done],
            "data_processed": [processed] * args.iter,
        },
    }


# ---- The whole ----


def _report(args: argparse.Namespace, stats: list[dict[str, Any]]) -> None:
    first = stats[0]
    print("cuDF merge benchmark")
    print_separator("-", _WIDTH)
    print_multi(["Device(s)", str(args.devs)])
    print_multi(["Chunks per device", str(args.chunks_per_dev)])
    print_multi(["Rows per chunk", str(args.chunk_size)])
    print_multi(["Total data processed", format_bytes(sum(s["data_processed"] for s in stats))])
    print_multi(["Data processed per iter", format_bytes(sum(s["iter_results"]["data_processed"][0] for s in stats))])
    print_multi(["Row matching fraction", str(args.frac_match)])
    print_separator("=", _WIDTH)
    print_multi(["Wall-clock", format_time(first["wallclock"])])
    print_multi(["Bandwidth", f"{format_bytes(hmean([s['bw'] for s in stats]))}/s"])
    print_multi(["Throughput", f"{format_bytes(first['throughput'])}/s"])
    print_separator("=", _WIDTH)
    print_multi(["Run", "Wall-clock", "Bandwidth", "Throughput"])
    each = first["iter_results"]
    for i in range(args.iter):
        bandwidth = format_bytes(hmean([s["iter_results"]["bw"][i] for s in stats]))
        throughput = format_bytes(each["throughput"][i])
        print_multi([str(i), format_time(each["wallclock"][i]), f"{bandwidth}/s", f"{throughput}/s"])


def _server_info(path: str, server: Any) -> dict[str, Any]:
    """What the server writes to its file, once it does."""
    while True:
        with open(path) as file, contextlib.suppress(json.JSONDecodeError):
            return dict(json.load(file))
        if not server.is_alive():
            sys.exit("the server ended before it listened")
        time.sleep(0.05)


def _run_here(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The server and all workers, as processes of this host; gives what the workers found."""
    with tempfile.NamedTemporaryFile() as file:
        server, queue = _run_cluster_server(file.name, args.n_chunks, api=args.api)
        info = _server_info(file.name, server)
    processes = [
        server,
        *_run_cluster_workers(
            info, args.n_chunks, args.num_node_workers, 0, worker, args, ensure_cuda_device=True, api=args.api
        ),
    ]
    stats: list[dict[str, Any]] = []
    while len(stats) < args.n_chunks:
        try:
            stats.append(queue.get(timeout=0.2))
        except queues.Empty:
            if any(process.exitcode for process in processes):
                for process in processes:
                    process.kill()  # the others would wait for it
                sys.exit("a process of the benchmark failed")
    for process in processes:
        process.join()
    return stats


def _run_over_ssh(args: argparse.Namespace) -> None:
    server_host, *worker_hosts = args.hosts.split(",")
    num_workers = len(args.devs.split(",")) * len(worker_hosts) * args.chunks_per_dev
    if args.print_commands_only:
        print_commands(args, server_host, worker_hosts, num_workers)
    else:
        run_ssh_cluster(args, server_host, worker_hosts, num_workers, _get_server_command, _get_worker_command)


def main(api: str = "hawser.ucp") -> None:
    """Run what the options ask for: the whole, or the server's or a host's part of it. api: as in utils."""
    args = parse_args(api=api)
    if args.hosts:
        return _run_over_ssh(args)
    if args.server:
        return _report(args, run_cluster_server(args.server_file, args.n_chunks, api=api))
    assert args.n_chunks % 2 == 0, "the number of chunks must be even"
    if args.server_file or args.server_address:
        return run_cluster_workers(
            args.server_info,
            args.n_chunks,
            args.num_node_workers,
            args.node_idx,
            worker,
            worker_args=args,
            ensure_cuda_device=True,
            api=api,
        )
    return _report(args, _run_here(args))


if __name__ == "__main__":
    main()
