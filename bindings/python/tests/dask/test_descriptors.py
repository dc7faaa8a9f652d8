"""Dask's monitors count the process's descriptors once for all servers of it."""

import os

import pytest
from dask.distributed import LocalCluster

from hawser.dask import _descriptors


@pytest.fixture
def listings(monkeypatch):
    """Every listing of a process's descriptors from now on."""
    listdir, found = os.listdir, []

    def counted(path="."):
        if str(path).startswith("/proc/") and str(path).endswith("/fd"):
            found.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", counted)
    return found


@pytest.mark.parametrize("told", [True, False], ids=["told", "listed"])
def test_servers_of_a_process_list_its_descriptors_together(listings, monkeypatch, told):
    if not told:
        monkeypatch.setattr(_descriptors, "_told", lambda: 0)
    elif not os.stat("/proc/self/fd").st_size:
        pytest.skip("before Linux 6.2 the number of descriptors is not told")
    monkeypatch.setattr(_descriptors, "_SECONDS", 1000.0)
    monkeypatch.setattr(_descriptors, "_listed", (-1000.0, 0))
    with LocalCluster(n_workers=3, processes=False, protocol="ucx", dashboard_address=None) as cluster:
        servers = [cluster.scheduler, *cluster.workers.values()]
        assert len(servers) == 4 and cluster.scheduler.address.startswith("ucx://")
        for server in servers:
            server.monitor.update()  # the listing that serves all
        listings.clear()
        for _ in range(10):
            counted = [server.monitor.update()["num_fds"] for server in servers]
        assert len(listings) == 0
        assert all(abs(n - len(os.listdir("/proc/self/fd"))) <= 8 for n in counted)


def test_the_number_is_right(monkeypatch):
    assert abs(_descriptors.count() - len(os.listdir("/proc/self/fd"))) <= 1
    monkeypatch.setattr(_descriptors, "_listed", (-1.0, 0))
    before = _descriptors._counted()
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    try:
        monkeypatch.setattr(_descriptors, "_listed", (-1.0, before))
        assert _descriptors._counted() == before + 5
        assert not _descriptors._told() or _descriptors._told() == before + 5
    finally:
        for fd in held:
            os.close(fd)
