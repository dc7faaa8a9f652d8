# TIMEOUT: 300
"""hawser.dask.LocalCluster, hawser-dask-worker and `dask hawser config`."""

import contextlib
import inspect
import os
import socket
import subprocess
import sys
import time

import dask
import pytest
from click.testing import CliRunner
from distributed import Client

import hawser.dask
from hawser.dask import _cli, _groups, _usable, _worker_options, _workers

pytestmark = [pytest.mark.filterwarnings("default")]
no_gpu = pytest.mark.skipif(_usable.no_cuda() is None, reason="this machine has a GPU, so nothing is refused")


@pytest.fixture(autouse=True)
def closed():
    yield
    _workers._close_all()


# ---- Who gets what ----


def make_sys(root, nodes):
    for i, cpus in enumerate(nodes):
        folder = root / f"devices/system/node/node{i}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
    return root


@pytest.mark.parametrize(
    "n, groups",
    [
        (None, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (1, [[0, 1, 2, 3, 4, 5, 6, 7]]),
        (2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (3, [[0, 1], [2, 3], [4, 5, 6, 7]]),
        (4, [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (16, [[0], [1], [2], [3]] * 2 + [[4], [5], [6], [7]] * 2),
    ],
)
def test_groups_of_cpus(tmp_path, n, groups):
    root = make_sys(tmp_path, ["0-3", "4-7"])
    got = _groups.cpu_groups(n, root, allowed=range(8))
    assert sorted(got) == sorted(groups) and len(got) == (n or 2)


def test_only_allowed_cpus_are_used(tmp_path):
    root = make_sys(tmp_path, ["0-3,16-19", "4-7"])
    assert _groups.numa_nodes(root, allowed=[1, 17]) == [[1, 17]]
    assert _groups.numa_nodes(tmp_path / "nothing", allowed=[3, 2]) == [[2, 3]]


def test_devices_are_rotated():
    assert _groups.visible_devices(None, 3) == ["0", "1", "2"]
    assert _groups.visible_devices("2, GPU-ab,MIG-cd", 8) == ["2", "GPU-ab", "MIG-cd"]
    assert _groups.visible_devices([0, 3], 8) == ["0", "3"] and _groups.visible_devices("", 8) == []
    assert [_groups.rotated(["0", "1", "2"], i) for i in range(4)] == ["0,1,2", "1,2,0", "2,0,1", "0,1,2"]
    for wrong in ("0,0", "cuda:1", [-1]):
        with pytest.raises(ValueError):
            _groups.visible_devices(wrong, 8)


def test_net_devices_of_each_worker(monkeypatch):
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    monkeypatch.setattr(_worker_options, "nearest_devices", lambda visible, cpus: f"near {visible or cpus}")
    plan = _worker_options.Machine([[0], [1]], [], "auto", [])
    assert [plan.env(i) for i in range(2)] == [{"UCX_NET_DEVICES": "near [0]"}, {"UCX_NET_DEVICES": "near [1]"}]
    plan = _worker_options.Machine([[0], [1]], ["5", "7"], lambda i: f"mlx5_{i}:1", [])
    assert plan.env(1) == {"CUDA_VISIBLE_DEVICES": "7,5", "UCX_NET_DEVICES": "mlx5_1:1"}
    monkeypatch.setenv("UCX_NET_DEVICES", "mine")
    assert "UCX_NET_DEVICES" not in plan.env(0)


# ---- The cluster ----

# Dask-CUDA's, see its LocalCUDACluster.
OPTIONS = """CUDA_VISIBLE_DEVICES n_workers threads_per_worker memory_limit device_memory_limit enable_cudf_spill
cudf_spill_stats local_directory protocol enable_tcp_over_ucx enable_infiniband enable_nvlink enable_rdmacm
rmm_pool_size rmm_maximum_pool_size rmm_managed_memory rmm_async rmm_allocator_external_lib_list
rmm_release_threshold rmm_log_directory rmm_track_allocations log_spilling pre_import"""


@pytest.mark.parametrize("names", ["nonsense0", "lo,nonsense0", lambda i: f"mlx5_{i + 70}:1"])
def test_a_net_device_that_is_not_here(names, monkeypatch):
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    with pytest.raises(RuntimeError, match=r"no device (nonsense0|mlx5_70:1)"):
        hawser.dask.LocalCluster(n_workers=1, ucx_net_devices=names, dashboard_address=":0")


def test_options_are_dask_cuda_s():
    names = list(inspect.signature(hawser.dask.LocalCluster).parameters)
    assert names[: len(OPTIONS.split())] == OPTIONS.split() and "ucx_net_devices" in names


@no_gpu
@pytest.mark.parametrize(
    "option",
    [
        {"CUDA_VISIBLE_DEVICES": [0]},
        {"rmm_pool_size": "1GB"},
        {"rmm_async": True},
        {"device_memory_limit": 0.8},
        {"enable_cudf_spill": True},
        {"log_spilling": True},
    ],
)
def test_without_a_gpu_its_options_say_so(option):
    with pytest.raises(RuntimeError, match=f"{next(iter(option))}.*there is no GPU to use: "):
        hawser.dask.LocalCluster(n_workers=1, dashboard_address=":0", **option)


def test_options_that_contradict_each_other():
    with pytest.raises(ValueError, match="processes"):
        hawser.dask.LocalCluster(processes=False)
    with pytest.raises(TypeError, match="tcp"):
        hawser.dask.LocalCluster(protocol="tcp", enable_infiniband=True)
    with pytest.raises(ValueError, match="ucx_net_devices"):
        hawser.dask.LocalCluster(ucx_net_devices="")


def facts():
    import sys

    return sorted(os.sched_getaffinity(0)), os.environ.get("UCX_NET_DEVICES"), "wave" in sys.modules


@pytest.mark.usefixtures("forked")
def test_each_worker_has_cpus_and_devices_of_its_own(monkeypatch):
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    options = {"dashboard_address": ":0", "pre_import": "wave", "ucx_net_devices": lambda i: ["lo", "all"][i]}
    with hawser.dask.LocalCluster(n_workers=2, **options) as c, Client(c) as client:
        assert c.scheduler_address.startswith("ucx://")
        client.wait_for_workers(2, timeout=60)
        found = client.run(facts)
        groups = _groups.cpu_groups(2)
        assert sorted(cpus for cpus, _, _ in found.values()) == sorted(groups)
        assert {devices for _, devices, _ in found.values()} == {"lo", "all"}
        assert all(imported for _, _, imported in found.values())
        threads = {info["name"]: info["nthreads"] for info in client.scheduler_info()["workers"].values()}
        assert threads == {i: len(groups[i]) for i in range(2)}
        assert client.submit(sum, [1, 2], pure=False).result(timeout=60) == 3


@pytest.mark.usefixtures("forked")
def test_a_cluster_changes_its_size_during_a_job():
    def slow(i):
        time.sleep(0.1)
        return i

    with hawser.dask.LocalCluster(n_workers=1, dashboard_address=":0") as c, Client(c) as client:
        futures = client.map(slow, range(100))
        c.scale(3)
        client.wait_for_workers(3, timeout=90)
        c.scale(1)
        assert sum(client.gather(futures)) == sum(range(100))
        c.adapt(minimum=1, maximum=3, interval="200ms", wait_count=2)
        futures = client.map(slow, range(100, 300))
        assert sum(client.gather(futures)) == sum(range(100, 300))
        names = {info["name"] for info in client.scheduler_info()["workers"].values()}
        assert names and names <= {0, 1, 2}


@contextlib.contextmanager
def program(*args, **options):
    process = subprocess.Popen([sys.executable, "-m", *args], **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def test_worker_and_config_programs(tmp_path):
    file = tmp_path / "scheduler.json"
    scheduler = ["distributed.cli.dask_scheduler", "--protocol", "ucx", "--port", "0", "--no-dashboard"]
    pid_file = tmp_path / "pid"
    worker = ["hawser.dask", "worker", "--scheduler-file", file, "--n-workers", "2", "--name", "w", "--no-dashboard"]
    worker += ["--nthreads", "1", "--enable-tcp-over-ucx", "--resources", "GPU=1,MEM=2e9", "--pid-file", pid_file]
    with program(*scheduler, "--scheduler-file", file), program(*worker) as process:
        with Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(2, timeout=90)
            # The client's own list may be older than these workers. By value: the scheduler has no such module.
            threads = client.run_on_scheduler(
                lambda dask_scheduler: {w.name: w.nthreads for w in dask_scheduler.workers.values()}
            )
            assert threads == {"w-0": 1, "w-1": 1}
            assert int(pid_file.read_text()) == process.pid
            got = client.submit(sum, [1, 2], resources={"GPU": 1}, pure=False)
            assert got.result(timeout=60) == 3
        done = subprocess.run(
            [sys.executable, "-m", "hawser.dask", "config", "--scheduler-file", file],
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("\nucx://") + done.stdout.startswith("ucx://") == 2
        assert "'TLS': 'tcp,sm,self'" in done.stdout or "UCX_TLS" in os.environ
        assert "Affinity" in done.stdout
    assert not pid_file.exists()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.parametrize("contact", [False, True])
def test_a_worker_listens_where_it_is_told(tmp_path, contact):
    file, port = tmp_path / "scheduler.json", free_port()
    scheduler = ["distributed.cli.dask_scheduler", "--protocol", "ucx", "--port", "0", "--no-dashboard"]
    worker = ["hawser.dask", "worker", "--scheduler-file", file, "--n-workers", "1", "--no-dashboard"]
    worker += ["--listen-address", f"ucx://{'0.0.0.0' if contact else '127.0.0.1'}:{port}"]
    worker += ["--contact-address", f"ucx://127.0.0.1:{port}"] if contact else []
    with program(*scheduler, "--scheduler-file", file), program(*worker):
        with Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(1, timeout=90)
            assert list(client.run(os.getpid)) == [f"ucx://127.0.0.1:{port}"]
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3


@pytest.mark.parametrize("place", ["127.0.0.1:0", "0.0.0.0:0"])
def test_a_worker_is_reached_where_it_listens(tmp_path, place):
    """Not at what it was told: that is no port, or no host, that others can connect to."""
    file = tmp_path / "scheduler.json"
    scheduler = ["distributed.cli.dask_scheduler", "--protocol", "ucx", "--port", "0", "--no-dashboard"]
    worker = ["hawser.dask", "worker", "--scheduler-file", file, "--n-workers", "1", "--no-dashboard"]
    with program(*scheduler, "--scheduler-file", file), program(*worker, "--listen-address", f"ucx://{place}"):
        with Client(scheduler_file=str(file), timeout=60) as client:
            client.wait_for_workers(1, timeout=90)
            (address,) = client.run(os.getpid)
            assert not address.startswith("ucx://0.0.0.0") and not address.endswith(":0")
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3


@pytest.mark.parametrize(
    "options, said",
    [
        ("--contact-address ucx://127.0.0.1:9000", "--contact-address needs --listen-address"),
        ("--n-workers 2 --listen-address ucx://127.0.0.1:9000", "for one worker"),
        ("--n-workers 1 --listen-address ucx://127.0.0.1:9000 --host 127.0.0.1", "for one worker"),
        ("--n-workers 1 --listen-address ucx://127.0.0.1", "port"),
        ("--resources GPU", "'GPU' is not NAME=NUMBER"),
        ("--resources GPU=x", "'GPU=x' is not NAME=NUMBER"),
        ("--worker-class nosuch.Worker", "--worker-class: No module named 'nosuch'"),
        ("--worker-class os.Worker", "--worker-class: module 'os' has no attribute 'Worker'"),
        ("--nthreads 0", "--nthreads"),
        ("--multiprocessing-method fork", "UCX does not survive a fork"),
        ("--death-timeout soon", "--death-timeout: 'soon' is not a time"),
        ("--preload nosuch", "--preload: No module named 'nosuch'"),
        ("--interface nosuch", "'nosuch' is not a valid network interface"),
        ("--protocol nosuch", "unknown address scheme 'nosuch'"),
        (f"--protocol tls --tls-ca-file {__file__} --tls-cert {__file__} --tls-key {__file__}", "(_ssl.c:"),
    ],
)
def test_options_of_the_worker_that_cannot_be(options, said):
    result = CliRunner().invoke(_cli.worker, ["ucx://127.0.0.1:1", *options.split()])
    assert result.exit_code in (1, 2) and isinstance(result.exception, SystemExit), result
    assert said in " ".join(result.output.split()), result.output


def test_no_pid_file_stays(tmp_path):
    """Neither of a program that its options end, nor is it an error that somebody has removed it."""
    pid_file = tmp_path / "pid"
    options = ["ucx://127.0.0.1:1", "--pid-file", str(pid_file), "--resources", "GPU"]
    result = CliRunner().invoke(_cli.worker, options)
    assert result.exit_code == 2 and "'GPU' is not NAME=NUMBER" in result.output, result.output
    assert not pid_file.exists()
    with _cli._pid_file(str(pid_file)):
        assert int(pid_file.read_text()) == os.getpid()
        pid_file.unlink()


def test_programs_say_what_is_wrong():
    def run(*args):
        done = subprocess.run([sys.executable, "-m", "hawser.dask", *args], capture_output=True, text=True, timeout=90)
        return done.returncode, done.stderr

    code, said = run("worker")
    assert code != 0 and "scheduler" in said and "Traceback" not in said
    if _usable.no_cuda():
        code, said = run("worker", "ucx://127.0.0.1:1", "--rmm-pool-size", "1GB")
        assert code != 0 and "rmm_pool_size: there is no GPU" in said and "Traceback" not in said
    with dask.config.set({}):
        code, said = run("config", "ucx://127.0.0.1:1", "--timeout", "1")
        assert code != 0 and "Error" in said and "Traceback" not in said
