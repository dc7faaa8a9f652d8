"""A cluster for benchmarks: processes that are connected each with all the others.

A server process introduces the workers to each other and collects what their function gives. Every
process is spawned, so functions and arguments must be picklable. `api` is the module whose endpoints they have:
"hawser.ucp" or "hawser.ucxx".
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

from hawser.ucp._libs.utils import get_address
from hawser.ucp.utils import mp

_POLL_SECONDS = 0.05


def get_allocator(object_type: str, rmm_init_pool_size: int | None, rmm_managed_memory: bool) -> Any:
    """The array library of an object type: numpy, or cupy, with RMM's memory for "rmm"."""
    if object_type == "numpy":
        import numpy as xp

        return xp
    import cupy

    if object_type == "rmm":
        import rmm
        from rmm.allocators.cupy import rmm_cupy_allocator

        rmm.reinitialize(pool_allocator=True, managed_memory=rmm_managed_memory, initial_pool_size=rmm_init_pool_size)
        cupy.cuda.set_allocator(rmm_cupy_allocator)
    else:
        cupy.cuda.runtime.setDevice(0)
    return cupy


async def send_pickled_msg(ep: Any, obj: Any) -> None:
    """Send any picklable object."""
    await ep.send_obj(pickle.dumps(obj))


async def recv_pickled_msg(ep: Any) -> Any:
    """Receive what send_pickled_msg() sends. Only from peers that are trusted: it is unpickled."""
    return pickle.loads(await ep.recv_obj())


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(_POLL_SECONDS)


# ---- The server ----


def _tell_where(server_file: str | None, port: int) -> None:
    where = json.dumps({"address": get_address(), "port": port})
    if server_file is None:
        print(where)
        sys.stdout.flush()
    else:
        with open(server_file, "w") as file:
            file.write(where)


async def _introduce_workers(ucp: Any, server_file: str | None, n_workers: int) -> dict[int, Any]:
    """Tell every worker where all are, once all are there; what they found, by rank."""
    where: dict[int, tuple[str, int]] = {}
    results: dict[int, Any] = {}

    async def serve(ep: Any) -> None:
        rank, ip, port = await recv_pickled_msg(ep)
        where[rank] = (ip, port)
        await _until(lambda: len(where) == n_workers)
        await send_pickled_msg(ep, where)
        results[rank] = await recv_pickled_msg(ep)

    listener = ucp.create_listener(serve)
    _tell_where(server_file, listener.port)
    await _until(lambda: len(results) == n_workers)
    listener.close()
    return results


def _server_process(
    queue: Any, server_file: str | None, n_workers: int, options: dict[str, str] | None, api: str
) -> None:
    ucp = importlib.import_module(api)
    if options is not None:
        ucp.init(options)
    results = asyncio.run(_introduce_workers(ucp, server_file, n_workers))
    for rank in range(n_workers):
        queue.put(results[rank])


def _run_cluster_server(
    server_file: str | None,
    n_workers: int,
    ucx_options_list: dict[str, str] | None = None,
    api: str = "hawser.ucp",
) -> tuple[Any, Any]:
    """As run_cluster_server(), but gives at once the process and the queue of the results."""
    queue = mp.Queue()
    process = mp.Process(target=_server_process, args=(queue, server_file, n_workers, ucx_options_list, api))
    process.start()
    return process, queue


def run_cluster_server(
    server_file: str | None,
    n_workers: int,
    ucx_options_list: dict[str, str] | None = None,
    api: str = "hawser.ucp",
) -> list[Any]:
    """Introduce `n_workers` workers to each other and give their results, ordered by rank.

    server_file: where to write address and port; None for the standard output.
    """
    process, queue = _run_cluster_server(server_file, n_workers, ucx_options_list, api)
    # Taken before the process is joined: it ends only when its queue is read.
    results = [queue.get() for _ in range(n_workers)]
    process.join()
    assert not process.exitcode
    return results


# ---- The workers ----


def _ensure_cuda_device(devices: list[int], rank: int) -> None:
    import numba.cuda

    os.environ["CUDA_VISIBLE_DEVICES"] = str(devices[rank % len(devices)])
    numba.cuda.current_context()


async def _connect_all(
    ucp: Any, rank: int, peers: dict[int, tuple[str, int]], endpoints: dict[int, Any]
) -> dict[int, Any]:
    """Connect to those of higher rank; those of lower rank connect to us."""
    for other in range(rank + 1, len(peers)):
        endpoints[other] = await ucp.create_endpoint(*peers[other])
        await endpoints[other].send(rank.to_bytes(8, sys.byteorder))
    await _until(lambda: len(endpoints) == len(peers) - 1)
    return endpoints


async def _work(ucp: Any, server_info: dict[str, Any], rank: int, func: Callable[..., Any], args: Any) -> None:
    endpoints: dict[int, Any] = {}

    async def serve(ep: Any) -> None:
        message = bytearray(8)
        await ep.recv(message)
        endpoints[int.from_bytes(message, sys.byteorder)] = ep

    listener = ucp.create_listener(serve)
    server = await ucp.create_endpoint(server_info["address"], server_info["port"])
    await send_pickled_msg(server, (rank, get_address(), listener.port))
    await _connect_all(ucp, rank, await recv_pickled_msg(server), endpoints)
    result = func(rank, endpoints, args)
    if asyncio.iscoroutine(result):
        result = await result
    await send_pickled_msg(server, result)
    await server.flush()
    listener.close()


def _worker_process(
    server_info: dict[str, Any],
    num_node_workers: int,
    rank: int,
    ucx_options_list: list[dict[str, str]] | None,
    ensure_cuda_device: bool,
    api: str,
    func: Callable[..., Any],
    args: Any,
) -> None:
    if ensure_cuda_device:
        _ensure_cuda_device(args.devs, rank % num_node_workers)
    ucp = importlib.import_module(api)
    if ucx_options_list is not None:
        ucp.init(ucx_options_list[rank])
    asyncio.run(_work(ucp, server_info, rank, func, args))


def _run_cluster_workers(
    server_info: str | dict[str, Any],
    num_workers: int,
    num_node_workers: int,
    node_idx: int,
    worker_func: Callable[..., Any],
    worker_args: Any = None,
    ucx_options_list: list[dict[str, str]] | None = None,
    ensure_cuda_device: bool = False,
    api: str = "hawser.ucp",
) -> list[Any]:
    """As run_cluster_workers(), but gives the running processes at once."""
    if isinstance(server_info, str):
        with open(server_info) as file:
            server_info = json.load(file)
    if not isinstance(server_info, dict):
        raise ValueError("server_info must be the path of a server file, or a dict with its values")
    processes = []
    for worker in range(num_node_workers):
        rank = node_idx * num_node_workers + worker
        args = (server_info, num_node_workers, rank, ucx_options_list, ensure_cuda_device, api)
        process = mp.Process(target=_worker_process, args=(*args, worker_func, worker_args))
        process.start()
        processes.append(process)
    return processes


def run_cluster_workers(
    server_info: str | dict[str, Any],
    num_workers: int,
    num_node_workers: int,
    node_idx: int,
    worker_func: Callable[..., Any],
    worker_args: Any = None,
    ucx_options_list: list[dict[str, str]] | None = None,
    ensure_cuda_device: bool = False,
    api: str = "hawser.ucp",
) -> None:
    """Run `worker_func(rank, endpoints, worker_args)` in the processes of one node, and wait for them.

    server_info: the file that the server wrote, or what stands in it. num_workers: of all nodes,
    num_node_workers of this one; node_idx: which node this is. worker_func: also a coroutine
    function; its endpoints are a dict by rank. ensure_cuda_device: give each worker a device of
    `worker_args.devs`.
    """
    processes = _run_cluster_workers(
        server_info,
        num_workers,
        num_node_workers,
        node_idx,
        worker_func,
        worker_args,
        ucx_options_list,
        ensure_cuda_device,
        api,
    )
    for process in processes:
        process.join()
        assert not process.exitcode
