"""ucp.benchmarks.send_recv: its options, its report, and what happens when one end cannot go on. TIMEOUT: 240 SERIAL"""

import argparse
import importlib.util
import queue
import re
import subprocess
import sys

import pytest
from benchmark_support import PIPES, check_that_one_end_dies
from ucp.benchmarks.backends.base import BaseClient, BaseServer
from ucp.benchmarks.backends.ucp_async import UCXPyAsyncClient, UCXPyAsyncServer
from ucp.benchmarks.backends.ucp_core import UCXPyCoreClient, UCXPyCoreServer, WireupMessage
from ucp.benchmarks.send_recv import _get_backend_implementation, parse_args
from ucp_support import event_loop_policy, fresh_ucp  # noqa: F401

BENCHMARK = [sys.executable, "-m", "ucp.benchmarks.send_recv"]
WITH_TORNADO = pytest.param(
    "tornado", marks=pytest.mark.skipif(importlib.util.find_spec("tornado") is None, reason="needs tornado")
)


def rows_of(*options):
    """The rows of a report by their names. A good run says nothing else."""
    done = subprocess.run([*BENCHMARK, "-n", "10 kB", *options], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    lines = done.stdout.splitlines()
    where = re.fullmatch(r"Server Running at ([\d.]+:\d+)", lines[0])[1]
    assert lines[1:3] == [f"Client connecting to server at {where}", "Roundtrip benchmark"]
    return dict(re.split(r" +\| ", line, maxsplit=1) for line in lines if " | " in line)


@pytest.mark.parametrize("backend", ["ucp-async", "ucp-core", WITH_TORNADO])
@pytest.mark.parametrize("options", [[], ["--enable-am"], ["--reuse-alloc", "--no-error-handling"]])
def test_report(backend, options):
    rows = rows_of("-l", backend, "--n-iter", "3", *options)
    assert (rows["Bytes"], rows["Object type"], rows["Device(s)"]) == ("9.77 kiB", "numpy", "CPU-only")
    assert rows["Reuse allocation"] == str("--reuse-alloc" in options)
    assert rows["Server CPU"] == rows["Client CPU"] == "affinity not set"
    for kind in ("average", "median"):
        assert re.fullmatch(r"[\d.]+ \w*B/s", rows[f"Bandwidth ({kind})"])
        assert re.fullmatch(r"\d+ ns", rows[f"Latency ({kind})"])
    assert rows["Iterations"] == "Bandwidth, Latency" and "3" not in rows
    assert all(re.fullmatch(r"[\d.]+ \w*B/s, \d+ns", rows[str(i)]) for i in range(3))
    of_ucx = {"Transfer API": "AM" if "--enable-am" in options else "TAG", "UCX_TLS": "all", "UCX_NET_DEVICES": "all"}
    of_core = {"Delay progress": "False"} if backend == "ucp-core" else {}
    for name in ("Transfer API", "Delay progress", "UCX_TLS", "UCX_NET_DEVICES"):
        assert rows.get(name) == (None if backend == "tornado" else {**of_ucx, **of_core}.get(name))


@pytest.mark.parametrize("most", [0, 6, 32])
@pytest.mark.parametrize("options", [[], ["--enable-am"]])
def test_many_outstanding(most, options):
    rows = rows_of(
        "-l", "ucp-core", "--delay-progress", "--max-outstanding", str(most), "--n-iter", "40", "-b", "0", *options
    )
    assert rows["Delay progress"] == f"True ({most})" and rows["Server CPU"] == "0"


def test_ucx_settings_are_reported(monkeypatch):
    monkeypatch.setenv("UCX_TLS", "tcp,self")
    rows = rows_of("--no-detailed-report")
    assert rows["UCX_TLS"] == "tcp,self" and rows["Iterations"] == "10" and "0" not in rows


def test_options():
    args = parse_args([])
    assert (args.n_bytes, args.n_iter, args.n_warmup_iter, args.backend) == (10_000_000, 10, 10, "ucp-async")
    assert (args.server_dev, args.client_dev, args.port, args.error_handling) == (0, 0, None, True)
    args = parse_args(["-d", "2", "-e", "1", "-l", "ucp-core", "--delay-progress", "--enable-am", "-s", "1.2.3.4"])
    assert (args.server_dev, args.client_dev, args.server_address) == (2, 1, "1.2.3.4")


@pytest.mark.parametrize(
    "options, said",
    [
        (["--cuda-profile"], "--object_type"),
        (["-l", "pigeon"], "Unknown backend pigeon"),
        (["-l", "tornado", "-o", "cupy"], "CUDA|not installed"),
        (["--delay-progress"], "ucp-core"),
        (["-l", "ucp-core", "--report-gil-contention"], "ucp-async"),
        (["--client-only"], "--port"),
    ],
)
def test_options_that_do_not_go_together(options, said):
    with pytest.raises(RuntimeError, match=said):
        parse_args(options)


def test_backends():
    assert _get_backend_implementation("ucp-async") == {"client": UCXPyAsyncClient, "server": UCXPyAsyncServer}
    assert _get_backend_implementation("ucp-core") == {"client": UCXPyCoreClient, "server": UCXPyCoreServer}
    assert _get_backend_implementation("pigeon") == {"client": None, "server": None}
    args, into = argparse.Namespace(), queue.Queue()
    for name in ("ucp-async", "ucp-core", *["tornado"] * (importlib.util.find_spec("tornado") is not None)):
        ends = _get_backend_implementation(name)
        server, client = ends["server"](args, into), ends["client"](args, into, "1.2.3.4", 5)
        assert isinstance(server, BaseServer) and isinstance(client, BaseClient)
        assert server.has_cuda_support is client.has_cuda_support is (name != "tornado")
        assert (client.args, client.queue, client.server_address, client.port) == (args, into, "1.2.3.4", 5)
    assert WireupMessage == b"wireup"


@pytest.mark.parametrize("base, arguments", [(BaseServer, (None, None)), (BaseClient, (None, None, "", 0))])
def test_a_backend_says_what_it_can(base, arguments):
    with pytest.raises(TypeError, match="has_cuda_support"):
        base(*arguments)

    class Own(base):
        has_cuda_support = False

        def run(self):
            return "ran"

    assert Own(*arguments).run() == "ran"


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="cupy is here")
def test_a_benchmark_that_cannot_begin():
    done = subprocess.run([*BENCHMARK, "-o", "cupy", "-n", "1kB"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "cupy" in done.stderr


@pytest.mark.parametrize("backend", ["ucp-async", "ucp-core", WITH_TORNADO])
def test_the_two_ends_by_themselves(backend):
    options = ["-n", "8", "-l", backend, "--n-iter", "200", "--no-detailed-report"]
    with subprocess.Popen([*BENCHMARK, *options, "--server-only"], **PIPES) as server:
        try:
            port = server.stdout.readline().rpartition(":")[2].strip()
            done = subprocess.run([*BENCHMARK, *options, "--client-only", "-p", port], timeout=60, **PIPES)
            assert done.returncode == 0 and "Roundtrip benchmark" in done.stdout, done.stderr
            assert server.wait(20) == 0 and server.stderr.read() == ""
        finally:
            server.kill()


@pytest.mark.parametrize("backend", ["ucp-async", "ucp-core"])
@pytest.mark.parametrize("dies", ["client", "server"])
def test_one_end_dies(backend, dies):
    options = ["-n", "8", "-l", backend, "--n-iter", "100000000" if backend == "ucp-async" else "400000"]
    check_that_one_end_dies(BENCHMARK, options, dies, "UCX")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--n-iter", "0", "must be 1 or more"),
        ("--n-iter", "-1", "must be 1 or more"),
        ("--n-warmup-iter", "-1", "must be 0 or more"),
        ("--n-bytes", "-5", "must be 0 or more"),
        ("--n-bytes", "1e400", "infinity"),
        ("--n-bytes", "abc", "invalid parse_bytes value"),
    ],
)
def test_numbers_that_cannot_be(option, value, said, capsys):
    with pytest.raises(SystemExit):
        parse_args([f"{option}={value}"])
    error = capsys.readouterr().err
    assert option in error and said in error
