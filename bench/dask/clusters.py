"""A cluster for each protocol, side by side, so that rounds can alternate between them."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator

import dask
from dask.distributed import Client, LocalCluster


def protocols() -> dict[str, str | None]:
    """The protocols to compare; the value is why one cannot be had."""
    has_ucxx = importlib.util.find_spec("distributed_ucxx") is not None
    return {"tcp": None, "ucx": None, "ucxx": None if has_ucxx else "distributed-ucxx is not installed"}


@contextlib.contextmanager
def clusters(names: list[str], n_workers: int, threads: int, gpu: bool) -> Iterator[dict[str, Client]]:
    """Clients by protocol. Nothing is spilled or paused: the transport is measured."""
    memory = {f"distributed.worker.memory.{key}": False for key in ("target", "spill", "pause", "terminate")}
    # ucx:// is measured as Hawser's also where distributed-ucxx, which has ucxx:// too, would keep it.
    settings = {**memory, "distributed.comm.ucx.owner": "hawser", "distributed.admin.low-level-log-length": 100_000}
    if gpu:
        settings["distributed.comm.ucx.create-cuda-context"] = True
    logging.getLogger("distributed.shuffle").setLevel(logging.ERROR)
    with dask.config.set(settings), contextlib.ExitStack() as stack:
        if "ucx" in names:
            import hawser.dask

            hawser.dask.claim_ucx()
        clients = {}
        for name in names:
            cluster = stack.enter_context(
                LocalCluster(n_workers=n_workers, threads_per_worker=threads, protocol=name, dashboard_address=None)
            )
            clients[name] = stack.enter_context(Client(cluster, set_as_default=False))
            clients[name].wait_for_workers(n_workers)
        yield clients
