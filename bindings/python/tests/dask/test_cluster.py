# TIMEOUT: 180
"""Clusters over ucx:// with nothing configured, and one whose worker is killed."""

import os
import signal
import subprocess
import sys
import time

import dask
import dask.array as da
import numpy as np
import pytest
from dask_support import orphans
from distributed import Client, LocalCluster, wait

from hawser.dask import HawserComm, _workers

pytestmark = [pytest.mark.filterwarnings("default")]


@pytest.fixture(params=[None, "tcp,self", "sysv,tcp,self"], ids=["unset", "tcp", "shm"], autouse=True)
def tls(request, monkeypatch):
    if request.param is not None:
        monkeypatch.setenv("UCX_TLS", request.param)
        # With nothing configured the workers are started as Dask does by itself.
        request.getfixturevalue("forked")
    with dask.config.set({"distributed.nanny.environ.UCX_TLS": request.param} if request.param else {}):
        yield request.param
        _workers._close_all()


@pytest.fixture(autouse=True)
def shared_memory():
    """No segment of this user's processes stays."""
    before = orphans()
    yield
    deadline = time.monotonic() + 5
    while left := orphans() - before:
        # A segment is there for a moment before anybody has mapped it.
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def cluster(protocol="ucx", **options):
    return LocalCluster(protocol=protocol, n_workers=2, threads_per_worker=1, dashboard_address=":0", **options)


def check_transpose_sum(n=2000):
    x = np.random.default_rng(1).random((n, n))
    y = da.from_array(x, chunks=(n // 4, n // 4)).persist()
    wait(y)
    assert (y + y.T).sum().compute() == pytest.approx(2 * x.sum())


@pytest.mark.parametrize("processes", [True, False])
def test_local_cluster_computes(tls, processes):
    if tls is not None and not processes:
        pytest.skip("one process is tried with UCX's own choice of transports only")
    with cluster(processes=processes) as c, Client(c) as client:
        assert c.scheduler_address.startswith("ucx://")
        assert isinstance(client.scheduler_comm.comm, HawserComm)
        check_transpose_sum()
        assert set(client.run(os.getenv, "UCX_TLS").values()) == {os.getenv("UCX_TLS")}
        workers = list(client.scheduler_info()["workers"])
        assert all(address.startswith("ucx://") for address in workers)


def test_client_by_address_and_large_objects():
    with cluster("hawser") as c, Client(c.scheduler_address) as client:
        a, b = client.scheduler_info()["workers"]
        x = client.submit(np.arange, 12_000_000, workers=[a])
        y = client.submit(lambda x: int(x.sum()), x, workers=[b])
        assert y.result() == sum(range(12_000_000))
        assert client.gather(x)[-1] == 11_999_999


def test_a_killed_worker_does_not_spoil_the_result():
    def slow(i):
        time.sleep(0.02)
        return np.full(100_000, i)

    with cluster() as c, Client(c) as client:
        pids = client.run(os.getpid)
        parts = client.map(slow, range(60))
        sums = client.map(lambda *xs: sum(int(x[0]) for x in xs), *[parts[i::6] for i in range(6)])
        total = client.submit(sum, sums)
        wait(parts[:10])
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        assert total.result(timeout=60) == sum(range(60))


def test_scheduler_and_worker_programs(tls, tmp_path):
    if tls is not None:
        pytest.skip("the programs are run with UCX's own choice of transports only")
    file = tmp_path / "scheduler.json"
    program = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
    scheduler = subprocess.Popen(
        [*program, "--protocol", "ucx", "--port", "0", "--no-dashboard", "--scheduler-file", file]
    )
    try:
        program = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-dashboard", "--nthreads", "1"]
        worker = subprocess.Popen([*program, "--protocol", "ucx", "--scheduler-file", file])
        try:
            with Client(scheduler_file=str(file), timeout=30) as client:
                assert client.scheduler.address.startswith("ucx://")
                client.wait_for_workers(1, timeout=30)
                assert client.submit(sum, [1, 2, 3]).result() == 6
        finally:
            worker.terminate()
            worker.wait(30)
    finally:
        scheduler.terminate()
        scheduler.wait(30)


def test_settings_reach_every_process(tls):
    """Settings reach the processes of a cluster as any of Dask's."""
    if tls is not None:
        pytest.skip("the setting has nothing to do with transports")
    with dask.config.set({"distributed.comm.ucx.progress": "thread"}):
        with cluster() as c, Client(c) as client:
            check_transpose_sum()
            modes = client.run(lambda: dask.config.get("distributed.comm.ucx.progress"))
            assert set(modes.values()) == {"thread"}
