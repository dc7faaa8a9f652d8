"""hawser.ucxx.benchmarks: options and reports of send_recv, its ends when one dies, clusters. TIMEOUT: 300 SERIAL"""

import importlib.util
import re
import subprocess
import sys

import pytest
from benchmark_support import check_that_one_end_dies
from ucp_support import event_loop_policy  # noqa: F401

from hawser.ucxx.benchmarks.backends.base import BaseClient, BaseServer
from hawser.ucxx.benchmarks.send_recv import _get_backend_implementation, parse_args
from hawser.ucxx.benchmarks.utils import _run_cluster_server, _run_cluster_workers

BENCHMARK = [sys.executable, "-m", "hawser.ucxx.benchmarks.send_recv"]
WITH_TORNADO = pytest.param(
    "tornado", marks=pytest.mark.skipif(importlib.util.find_spec("tornado") is None, reason="needs tornado")
)
OF_UCX = ("ucxx-async", "ucxx-core")


def rows_of(*options):
    """The rows of a report by their names. A good run says nothing else."""
    words = [*BENCHMARK, "-n", "10 kB", "--n-iter", "3", "--n-warmup-iter", "2", *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    assert "Roundtrip benchmark" in done.stdout
    return dict(re.split(r" +\| ", line, maxsplit=1) for line in done.stdout.splitlines() if " | " in line)


@pytest.mark.parametrize("backend", [*OF_UCX, "asyncio", "socket", WITH_TORNADO])
@pytest.mark.parametrize("options", [[], ["--enable-am"], ["--reuse-alloc", "--no-error-handling"]])
def test_report(backend, options):
    rows = rows_of("-l", backend, *options)
    assert (rows["Bytes"], rows["Number of buffers"], rows["Backend"]) == ("9.77 kiB", "1", backend)
    assert (rows["Object type"], rows["Device(s)"]) == ("numpy", "CPU-only")
    assert all(re.fullmatch(r"[\d.]+ \w*B/s, \d+ns", rows[str(i)]) for i in range(3)) and "3" not in rows
    of_ucx = {"Transfer API": "AM" if "--enable-am" in options else "TAG", "Progress mode": "thread", "UCX_TLS": "all"}
    of_core = {"Asyncio wait": "False", "Delay progress": "False"}
    wanted = {**(of_ucx if backend in OF_UCX else {}), **(of_core if backend == "ucxx-core" else {})}
    assert {name: rows[name] for name in (*of_ucx, *of_core) if name in rows} == wanted


@pytest.mark.parametrize("backend", OF_UCX)
@pytest.mark.parametrize("mode", ["blocking", "polling", "thread-polling"])
def test_progress_modes(backend, mode):
    assert rows_of("-l", backend, "--progress-mode", mode)["Progress mode"] == mode


@pytest.mark.parametrize("options", [["--asyncio-wait"], ["--delay-progress", "--max-outstanding", "4"]])
@pytest.mark.parametrize("am", [[], ["--enable-am"]])
def test_ways_to_wait(options, am):
    rows = rows_of("-l", "ucxx-core", *options, *am)
    assert rows["Asyncio wait"] == str("--asyncio-wait" in options)
    assert rows["Delay progress"] == ("True (4)" if "--delay-progress" in options else "False")


def test_many_buffers():
    """All count for the bandwidth."""
    rows = rows_of("-x", "5")
    assert rows["Number of buffers"] == "5"
    value, unit, latency = re.fullmatch(r"([\d.]+) (\w*)B/s, (\d+)ns", rows["0"]).groups()
    measured = float(value) * {"": 1, "ki": 2**10, "Mi": 2**20, "Gi": 2**30}[unit]
    assert measured * int(latency) / 1e9 == pytest.approx(50_000, rel=0.02)


@pytest.mark.parametrize(
    "options, said",
    [
        (["--cuda-profile"], "--object_type"),
        (["-l", "socket", "-o", "cupy"], "CUDA"),
        (["--delay-progress"], "ucxx-core"),
        (["-l", "ucxx-core", "--report-gil-contention"], "ucxx-async"),
        (["--client-only"], "--port"),
        (["--rmm-managed-memory"], "rmm"),
        (["--progress-mode", "none"], "none"),
        (["--progress-mode", "polling", "--asyncio-wait"], "thread"),
        (["-l", "ucxx-core", "-x", "2"], "ucxx-async"),
        (["-x", "0"], "at least 1"),
    ],
)
def test_options_that_do_not_go_together(options, said):
    with pytest.raises(RuntimeError, match=said):
        parse_args(options)


def test_backends():
    with pytest.raises(ValueError, match="Unknown backend pigeon"):
        parse_args(["-l", "pigeon"])
    args = parse_args(["-s", "1.2.3.4", "-o", "cupy", "--enable-am"])
    assert (args.backend, args.n_buffers, args.progress_mode, args.server_address) == (
        *("ucxx-async", 1, "thread"),
        "1.2.3.4",
    )
    for name in ("ucxx-async", "ucxx-core", "asyncio", "socket"):
        ends = _get_backend_implementation(name)
        assert isinstance(ends["server"](args, None), BaseServer)
        assert isinstance(ends["client"](args, None, "1.2.3.4", 5), BaseClient)
        assert ends["server"].has_cuda_support is ends["client"].has_cuda_support is name.startswith("ucxx")


@pytest.mark.parametrize("backend", [*OF_UCX, "asyncio", "socket"])
@pytest.mark.parametrize("dies", ["client", "server"])
def test_one_end_dies(backend, dies):
    options = ["-n", "8", "-l", backend, "--n-iter", "100000000", "--progress-mode", "blocking"]
    check_that_one_end_dies(BENCHMARK, options, dies, "Error")


async def sum_of_ranks(rank, endpoints, args):
    """Tell all others the rank, and add up theirs."""
    for ep in endpoints.values():
        await ep.send_multi([bytes([rank])])
    return args + sum([(await ep.recv_multi())[0][0] for ep in endpoints.values()])


def test_a_cluster(tmp_path):
    path = tmp_path / "server"
    path.touch()
    server, results = _run_cluster_server(str(path), 3, {"TLS": "tcp,self"})
    while not path.read_text():
        assert server.is_alive()
    workers = _run_cluster_workers(str(path), 3, 3, 0, sum_of_ranks, 100)
    assert [int(results.get(timeout=60)) for _ in workers] == [103, 102, 101]
    for process in (server, *workers):
        process.join(30)
        assert process.exitcode == 0
