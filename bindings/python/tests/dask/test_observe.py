# TIMEOUT: 180
"""hawser.dask.bandwidths() and initialize()."""

import os

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

import hawser.dask
from hawser.dask import _initialize, _transfers, _workers

pytestmark = [pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def closed():
    yield
    _workers._close_all()


@pytest.mark.parametrize("protocol", ["ucx", "tcp"])
def test_bandwidths_of_a_cluster(protocol):
    with (
        LocalCluster(n_workers=2, protocol=protocol, threads_per_worker=1, dashboard_address=":0") as c,
        Client(c) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        assert len(hawser.dask.bandwidths(client)) == 0
        a, b = client.scheduler_info()["workers"]
        for n in (1_000_000, 2_000_000, 100):
            x = client.submit(np.zeros, n, workers=[a], pure=False)
            wait(client.submit(np.sum, x, workers=[b], pure=False), timeout=60)
        table = hawser.dask.bandwidths(client)
        assert len(table) == 1
        pair = table[a, b]
        assert pair.transfers == 3 and 24_000_000 <= pair.bytes < 24_100_000 and pair.seconds > 0
        low, middle, high = pair.quartiles
        assert 0 < low <= middle <= high
        assert pair.transport == "tcp" if protocol == "tcp" else "/" in pair.transport
        assert hawser.dask.bandwidths(client, minimum=1_000_000)[a, b].transfers == 2
        head, line = str(table).splitlines()
        assert head.split()[:3] == ["from", "to", "transport"] and line.split()[:3] == [a, b, pair.transport]
        assert table._repr_html_().count("<tr>") == 2


async def test_bandwidths_of_an_asynchronous_client():
    async with (
        LocalCluster(n_workers=1, protocol="ucx", processes=False, dashboard_address=":0", asynchronous=True) as c,
        Client(c, asynchronous=True) as client,
    ):
        assert len(await hawser.dask.bandwidths(client)) == 0


def test_an_unknown_pair_is_a_key_error():
    with pytest.raises(KeyError):
        _transfers.Bandwidths([])["ucx://a", "ucx://b"]


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({}, {}),
        ({"enable_tcp_over_ucx": True}, {"tcp": True}),
        ({"enable_nvlink": False}, {"tcp": True, "infiniband": True, "nvlink": False}),
        ({"enable_infiniband": True, "enable_nvlink": False}, {"infiniband": True, "nvlink": False}),
        ({"enable_rdmacm": True}, {"rdmacm": True}),
    ],
)
def test_options_of_dask_cuda(options, wanted, monkeypatch):
    monkeypatch.setattr(_initialize, "no_cuda", lambda: "no device")
    settings = _initialize.transport_settings(**options)
    assert {key: value for key, value in settings.items() if value is not None} == wanted


def test_initialize_changes_the_settings_of_this_process():
    before = dask.config.get("distributed.comm.ucx")
    with dask.config.set({"distributed.comm.ucx": dict(before)}):
        hawser.dask.initialize(create_cuda_context=False, enable_tcp_over_ucx=True)
        assert dask.config.get("distributed.comm.ucx.tcp") is True
        if "UCX_TLS" not in os.environ:
            assert hawser.dask._config.ucx_config()["TLS"].startswith("tcp,sm,self")
