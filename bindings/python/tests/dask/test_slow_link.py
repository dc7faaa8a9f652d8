# TIMEOUT: 240
"""Tasks go where their data comes over the faster link: three network namespaces, one link slowed by the kernel."""

import json
import subprocess
import sys

import pytest
from namespaces import inside, ip, link, made, up

HUB, SLOW, FAST = "10.211.79.1", "10.211.79.2", "10.211.79.3"
# Of the slow link. 2 MB take 0.4 s; the other link carries some GB/s.
RATE = "40mbit"


def slow_down(namespace, device):
    """Whatever leaves there. A token bucket: netem is a module that machines for tests often lack."""
    command = f"tc -n {namespace} qdisc add dev {device} root tbf rate {RATE} burst 64kb latency 500ms"
    done = subprocess.run(command.split(), capture_output=True, check=False, text=True)
    if done.returncode:
        pytest.skip(f"the kernel slows no links: {done.stderr.strip()}")


@pytest.fixture
def hosts():
    """The namespaces of a hub, of a host behind a slow link and of one behind a fast link."""
    with made("hub", "slow", "fast") as (hub, slow, fast):
        ip("-n", hub, "link", "add", "br0", "type", "bridge")
        ip("-n", hub, "addr", "add", f"{HUB}/24", "dev", "br0")
        for host, port, address in ((slow, "slow", SLOW), (fast, "fast", FAST)):
            link(hub, port, host, "veth0")
            ip("-n", hub, "link", "set", port, "master", "br0")
            ip("-n", host, "addr", "add", f"{address}/24", "dev", "veth0")
            up(hub, port)
            up(host, "veth0")
        up(hub, "br0")
        slow_down(hub, "slow")
        yield hub, slow, fast


PROGRAM = """
import json, sys, time
import numpy as np
from distributed import Client, LocalCluster, wait

if __name__ == "__main__":
    hub = sys.argv[1]
    with LocalCluster(1, 1, protocol="ucx", host=hub, dashboard_address=":0") as cluster, Client(cluster) as client:
        print(cluster.scheduler_address, flush=True)
        client.wait_for_workers(3, timeout=90)
        names = {state.name: address for address, state in cluster.scheduler.workers.items()}
        source, slow, fast = names[0], names["slow"], names["fast"]
        known = cluster.scheduler.bandwidth_workers
        deadline = time.monotonic() + 90
        while (slow, source) not in known or (fast, source) not in known:
            assert time.monotonic() < deadline, dict(known)
            for worker in (slow, fast):
                x = client.submit(np.ones, 250_000, workers=[source], pure=False)
                client.submit(len, x, workers=[worker], pure=False).result(timeout=60)
        went = []
        for i in range(6):
            x = client.submit(np.ones, 250_000 + i, workers=[source], pure=False)
            wait(x, timeout=60)
            y = client.submit(len, x, workers=[slow, fast], pure=False)
            wait(y, timeout=60)
            went += client.who_has([y])[y.key]
        rates = [known[worker, source] for worker in (slow, fast)]
        print(json.dumps([[{slow: "slow", fast: "fast"}[address] for address in went], rates]), flush=True)
"""


def worker(namespace, scheduler, name, host, said):
    command = ["-m", "dask", "worker", scheduler, "--name", name, "--host", host, "--nthreads", 1, "--no-dashboard"]
    return subprocess.Popen(inside(namespace, sys.executable, *command), stdout=said, stderr=said)


def test_tasks_go_to_the_worker_behind_the_faster_link(hosts, tmp_path, monkeypatch):
    hub, slow, fast = hosts
    # The namespaces share memory, which hosts do not.
    monkeypatch.setenv("UCX_TLS", "tcp")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with open(tmp_path / "log", "w") as said:
        main = subprocess.Popen(
            inside(hub, sys.executable, program, HUB), stdout=subprocess.PIPE, stderr=said, text=True
        )
        scheduler = main.stdout.readline().strip()
        assert scheduler.startswith(f"ucx://{HUB}:"), (tmp_path / "log").read_text()
        workers = [worker(slow, scheduler, "slow", SLOW, said), worker(fast, scheduler, "fast", FAST, said)]
        try:
            out, _ = main.communicate(timeout=150)
        finally:
            for process in (main, *workers):
                process.terminate()
            for process in (main, *workers):
                process.wait(30)
    assert main.returncode == 0, (tmp_path / "log").read_text()
    went, (slow_rate, fast_rate) = json.loads(out)
    assert went == ["fast"] * 6
    assert slow_rate < 8e6 and fast_rate > 2 * slow_rate
