# TIMEOUT: 180
"""What is learned about pairs of workers: the scheduler's costs, plots, the page of the dashboard."""

import time
import types
import urllib.request

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

import hawser.dask
from hawser.dask import _report, _transfers, _workers
from hawser.dask._learn import PairBandwidths

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("forked")]


@pytest.fixture(autouse=True)
def closed():
    yield
    _workers._close_all()


class Ws:
    """What the plugin looks at of a worker's state."""

    def __init__(self, address):
        self.address = address


class Task:
    def __init__(self, nbytes, *holders):
        self.nbytes = nbytes
        self.who_has = set(holders)

    def get_nbytes(self):
        return self.nbytes


def test_costs_are_those_of_the_pair():
    plugin = PairBandwidths()
    scheduler = types.SimpleNamespace(bandwidth=100.0, bandwidth_workers={("b", "a"): 1000.0, ("c", "a"): 10.0})
    plugin.attach(scheduler)
    a, b, c, d = map(Ws, "abcd")
    data = Task(1000, a)
    needs = types.SimpleNamespace(dependencies={data})
    assert [scheduler.get_comm_cost(needs, ws) for ws in (a, b, c, d)] == [0, 1, 100, 10]
    both = types.SimpleNamespace(dependencies={data, Task(500, b)})
    assert scheduler.get_comm_cost(both, b) == 1 and scheduler.get_comm_cost(both, d) == 15


def test_tasks_go_to_the_worker_behind_the_faster_link():
    """How long a transfer took is told: it does not depend on what else the machine does. test_slow_link.py has a
    link that is slow."""

    def take(seconds, dask_worker):
        update = dask_worker._update_metrics_received_data

        def told(start, stop, **what):
            return update(start=start, stop=start + seconds, **what)

        dask_worker._update_metrics_received_data = told

    with LocalCluster(n_workers=3, protocol="ucx", threads_per_worker=1, dashboard_address=":0") as c:
        with Client(c) as client:
            client.wait_for_workers(3, timeout=60)
            source, slow, fast = client.scheduler_info()["workers"]
            client.run(take, 1.0, workers=[slow])
            client.run(take, 0.01, workers=[fast])
            for worker in (slow, fast, slow, fast):
                x = client.submit(np.ones, 500_000, workers=[source], pure=False)
                assert client.submit(len, x, workers=[worker], pure=False).result(timeout=60) == 500_000
            deadline = time.monotonic() + 60
            known = c.scheduler.bandwidth_workers
            while (slow, source) not in known or (fast, source) not in known:
                assert time.monotonic() < deadline, dict(known)
                time.sleep(0.1)
            assert known[fast, source] == pytest.approx(100 * known[slow, source])
            # Of workers that cost the same, Dask takes the one that holds less: that is the slow one.
            ballast = client.submit(bytes, 50_000_000, workers=[fast])
            wait(ballast, timeout=60)
            # Fresh data that only the source has; equal tasks that may run on either of the others.
            for i in range(5):
                z = client.submit(np.ones, 500_000 + i, workers=[source], pure=False)
                wait(z, timeout=60)
                w = client.submit(len, z, workers=[slow, fast], pure=False)
                wait(w, timeout=60)
                assert client.who_has([w])[w.key] == (fast,)


def test_learning_can_be_switched_off():
    with dask.config.set({"distributed.comm.ucx.learn-bandwidths": False}):
        with LocalCluster(n_workers=0, protocol="ucx", dashboard_address=":0") as c, Client(c) as client:
            assert PairBandwidths.name not in c.scheduler.plugins
            hawser.dask.learn_bandwidths(client)
            assert PairBandwidths.name in c.scheduler.plugins
            assert c.scheduler.get_comm_cost.__self__.name == PairBandwidths.name


def table():
    pairs = [
        _transfers.summary("ucx://a:1", "ucx://b:2", "sysv/memory", [(10.0, 10**8, 0.1), (11.0, 10**8, 0.2)]),
        _transfers.summary("ucx://b:2", "ucx://a:1", "tcp/<eth0>", [(12.0, 10**6, 0.5)]),
    ]
    return _transfers.Bandwidths(pairs)


def test_a_report_is_one_file(tmp_path):
    path = tmp_path / "report.html"
    table().save(path)
    text = path.read_text()
    assert text.count("<svg") == 2 and text.count("<circle") == 3 + 2 and text.count("<rect") == 2
    assert "sysv/memory" in text and "tcp/&lt;eth0&gt;" in text and "<eth0>" not in text
    _transfers.Bandwidths([]).save(path)
    assert "<table>" in path.read_text()


def test_colours_follow_the_values():
    svg = _report.heat_map(["a", "b"], {("a", "b"): 1.0, ("b", "a"): 1000.0}, "MB/s")
    assert "hsl(210,70%,92%)" in svg and "hsl(210,70%,45%)" in svg


def test_the_dashboard_of_a_worker_has_a_page():
    pytest.importorskip("bokeh")
    options = {"dashboard_address": ":0", "worker_dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=2, protocol="ucx", threads_per_worker=1, **options) as c, Client(c) as client:
        client.wait_for_workers(2, timeout=60)
        workers = client.scheduler_info()["workers"]
        a, b = workers
        x = client.submit(np.ones, 1_000_000, workers=[a])
        wait(client.submit(np.sum, x, workers=[b]), timeout=60)
        port = workers[b]["services"]["dashboard"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/hawser", timeout=60) as page:
            assert page.status == 200 and b"Hawser: transfers" in page.read()

        def rows(dask_worker):
            from hawser.dask._page import Transfers

            page = Transfers(dask_worker)
            page.update()
            return dict(page.peers.data), len(page.points.data["MB_s"])

        peers, points = client.run(rows, workers=[b])[b]
        assert peers["source"] == [a] and peers["MB"] == [pytest.approx(8, rel=0.01)] and points == 1
