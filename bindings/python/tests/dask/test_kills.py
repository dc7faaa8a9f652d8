# TIMEOUT: 300
# SOAK: 2400
"""Workers killed at random times while data goes from everybody to everybody: results are right and nothing stays.
A few kills; 200 with HAWSER_SOAK=1."""

import contextlib
import os
import random
import signal
import threading
import time

import dask
import dask.array as da
import numpy as np
import pytest
from dask_support import orphans
from distributed import Client, LocalCluster

import hawser
from hawser.dask import _workers

KILLS = 200 if os.environ.get("HAWSER_SOAK") else 6
WORKERS = 3

pytestmark = [pytest.mark.filterwarnings("default")]


def slow(block):
    time.sleep(0.02)
    return block


def job(client, data, method):
    n = data.shape[0]
    blocks = da.from_array(data, chunks=(n // 12, n)).map_blocks(slow, dtype=data.dtype)
    return client.compute((blocks.rechunk((n, n // 12), method=method) + 1).sum())


def kill_one(cluster, rng):
    """One of the workers that have started: a nanny gives a worker up that dies before, whatever the protocol."""
    known = set(cluster.scheduler.workers)
    pids = [nanny.pid for nanny in cluster.workers.values() if nanny.pid and nanny.worker_address in known]
    if not pids:
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.kill(rng.choice(pids), signal.SIGKILL)
    return 1


def wait_for_all(cluster, seconds=120):
    """Until each nanny has a worker that the scheduler knows."""
    deadline = time.monotonic() + seconds
    while {nanny.worker_address for nanny in cluster.workers.values()} != set(cluster.scheduler.workers):
        assert time.monotonic() < deadline, (cluster.workers, cluster.scheduler.workers)
        time.sleep(0.2)


def used():
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def settled(limits, seconds=60):
    """Whether descriptors and threads come down to the limits."""
    deadline = time.monotonic() + seconds
    while any(now > limit for now, limit in zip(used(), limits, strict=True)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def segments():
    return {name for name in os.listdir("/dev/shm") if name.startswith("ucx_shm_posix_")}


def test_random_kills():
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    rng = random.Random(seed)
    before = orphans()
    # A task that was on several workers that were killed is not to blame for it.
    settings = {"distributed.scheduler.allowed-failures": 10_000}
    with dask.config.set(settings):
        options = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(protocol="ucx", **options) as cluster, Client(cluster) as client:
            data = np.random.default_rng(seed).random((600, 600))
            expected = pytest.approx(data.sum() + data.size)
            assert job(client, data, "p2p").result(timeout=120) == expected
            limits = None
            done = 0
            while done < KILLS:
                method = "p2p" if done % 2 else "tasks"
                future = job(client, data, method)
                for _ in range(rng.randint(1, 2)):
                    time.sleep(rng.uniform(0.05, 0.8))
                    done += kill_one(cluster, rng)
                assert future.result(timeout=180) == expected, f"{method} after {done} kills"
                del future
                if limits is None and done >= KILLS // 2:
                    # Dask's pool has made its connections by now; their number varies by a few, each of 11 descriptors.
                    wait_for_all(cluster)
                    fds, threads = used()
                    limits = fds + 60, threads + 4
            wait_for_all(cluster)
            assert settled(limits), f"descriptors and threads may be {limits}, now {used()}"
    _workers._close_all()
    deadline = time.monotonic() + 20
    while left := (orphans() & segments()) - before:
        # What was killed while it made a segment leaves it to the next context.
        hawser.Context().close()
        assert time.monotonic() < deadline, left
        time.sleep(0.5)
