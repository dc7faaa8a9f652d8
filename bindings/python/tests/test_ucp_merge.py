"""ucp.benchmarks.cudf_merge without a GPU: its options and commands, and the arithmetic and the processes of the join.

pandas and numpy stand in for cudf and cupy, and tables travel pickled. Of send_df() and recv_df(), which are for
device memory, there is only the order of their messages. TIMEOUT: 240
"""

import argparse
import asyncio
import contextlib
import importlib
import importlib.util
import json
import os
import pickle
import re
import shlex
import subprocess
import sys
import types

import numpy as np
import pytest
from ucp.benchmarks import _merge_options as options
from ucp_support import connected, event_loop_policy, fresh_ucp  # noqa: F401

pd = pytest.importorskip("pandas")
ASYNCSSH = importlib.util.find_spec("asyncssh") is not None


STAND_INS = {
    "cudf.py": """
import pandas

class DataFrame(pandas.DataFrame):
    _constructor = property(lambda self: DataFrame)

    def partition_by_hash(self, columns, n):
        return [self[self[columns[0]] % n == i] for i in range(n)]

    def device_serialize(self):
        return {"table": self}, []

    @classmethod
    def device_deserialize(cls, header, frames):
        return header["table"]

concat = pandas.concat
""",
    "cupy.py": """
from numpy import arange, concatenate, empty, random

class cuda:
    set_allocator = staticmethod(lambda allocator: None)
""",
    "rmm/__init__.py": "def reinitialize(**options): pass",
    "rmm/allocators/__init__.py": "",
    "rmm/allocators/cupy.py": "rmm_cupy_allocator = None",
    "numba/__init__.py": "",
    "numba/cuda.py": "def current_context(): pass",
}


@pytest.fixture
def stand_ins(tmp_path):
    """The directory of what stands in for RAPIDS."""
    for name, text in STAND_INS.items():
        path = tmp_path / "stand-ins" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "stand-ins"


@pytest.fixture
def merge(monkeypatch, stand_ins):
    """cudf_merge over the stand-ins."""
    monkeypatch.syspath_prepend(stand_ins)
    monkeypatch.setenv("RAPIDS_NO_INITIALIZE", "")
    before = set(sys.modules)
    yield importlib.import_module("hawser.ucp.benchmarks.cudf_merge")
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("cudf", "cupy", "rmm") or name.endswith(".cudf_merge"):
            del sys.modules[name]


async def pair():
    """The endpoints of two ranks that are connected with each other."""
    served = asyncio.get_running_loop().create_future()

    async def serve(ep):
        served.set_result(ep)

    listener, ep = await connected(serve)
    listener.close()
    return {1: ep}, {0: await served}


@pytest.mark.parametrize("kind", ["build", "other"])
def test_chunks(merge, kind):
    chunks = [merge.generate_chunk(i, 1000, 4, kind, 0.3) for i in range(4)]
    assert all(list(c.columns) == ["key", "payload"] and set(c.dtypes) == {np.dtype("i8")} for c in chunks)
    keys = np.concatenate([c["key"] for c in chunks])
    assert len(set(keys)) == 4000
    if kind == "build":
        assert (keys == np.arange(4000)).all()
    else:
        matching = [np.bincount(c["key"][c["key"] < 4000] // 1000) for c in chunks]
        assert np.array_equal(matching, np.full((4, 4), 75))


async def test_join(merge):
    args = argparse.Namespace(n_chunks=2)
    tables = [[merge.generate_chunk(i, 1000, 2, kind, 0.4) for i in range(2)] for kind in ("build", "other")]
    timings = [], []
    parts = await asyncio.gather(
        *(
            merge.distributed_join(args, rank, eps, *(t[rank] for t in tables), timings[rank])
            for rank, eps in enumerate(await pair())
        )
    )
    whole = pd.concat(tables[0]).merge(pd.concat(tables[1]), on="key")
    got = pd.concat(parts)
    assert len(whole) == 800
    assert sorted(map(tuple, got.to_numpy())) == sorted(map(tuple, whole.to_numpy()))
    assert all(len(t) == 2 and all(seconds > 0 and size > 0 for seconds, size in t) for t in timings)


async def test_barrier(merge):
    first, second = await pair()
    waiting = asyncio.ensure_future(merge.barrier(0, first))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await merge.barrier(1, second)
    await waiting


async def test_workers_and_their_report(merge, tmp_path, capsys):
    profile = str(tmp_path / "profile")
    args = options.parse_args(["-d", "0,1", "-c", "100000", "--iter", "2", "--warmup-iter", "1", "--profile", profile])
    stats = await asyncio.gather(*(merge.worker(rank, eps, args) for rank, eps in enumerate(await pair())))
    for rank, found in enumerate(stats):
        assert found["data_processed"] == 2 * 3_200_000
        assert found["iter_results"].keys() == found.keys() - {"iter_results"}
        assert all(len(values) == 2 and min(values) > 0 for values in found["iter_results"].values())
        assert (tmp_path / f"profile.{rank}").exists()
    merge._report(args, stats)
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if "|" in line]
    assert lines[:2] == ["cuDF merge benchmark", "-" * 110]
    assert rows[0] == ["Device(s)", "[0, 1]"] and rows[2] == ["Rows per chunk", "100000"]
    assert rows[3:5] == [["Total data processed", "12.21 MiB"], ["Data processed per iter", "6.10 MiB"]]
    assert [row[0] for row in rows[5:]] == [
        "Row matching fraction", "Wall-clock", "Bandwidth", "Throughput", "Run", "0", "1",
    ]  # fmt: skip


class Pipe(list):
    """In the place of an endpoint."""

    async def send(self, message):
        self.append(message)

    async def recv(self, buffer):
        memoryview(buffer).cast("B")[:] = memoryview(self.pop(0)).cast("B")


class Frame(np.ndarray):
    __cuda_array_interface__ = property(lambda self: self.__array_interface__)


async def test_messages_of_a_table(merge):
    frames = [np.arange(n, dtype="u1").view(Frame) for n in (3, 5)]
    table = types.SimpleNamespace(device_serialize=lambda: ({"is-cuda": [True, True]}, frames))
    pipe = Pipe()
    await merge.send_df(pipe, table)
    assert len(pipe) == 4 and pipe[0].dtype == np.uint64 and pipe[0][0] == len(pipe[1])
    header = pickle.loads(pipe[1])
    assert [iface["shape"] for iface in header["frame_ifaces"]] == [(3,), (5,)]
    merge.cudf.DataFrame = types.SimpleNamespace(device_deserialize=lambda header, frames: (header, frames))
    got, came = await merge.recv_df(pipe)
    assert got == header and all(np.array_equal(a, b) for a, b in zip(came, frames, strict=True)) and not pipe


PROGRAM = [sys.executable, "-m", "ucp.benchmarks.cudf_merge"]


@pytest.fixture
def env(stand_ins):
    path = os.pathsep.join(filter(None, [str(stand_ins), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


@pytest.mark.parametrize("package", ["ucp", "hawser.ucxx"])
def test_one_host(env, package):
    words = ["-d", "0,1", "--chunks-per-dev", "2", "-c", "100000", "--iter", "2", "--warmup-iter", "1"]
    program = [sys.executable, "-m", f"{package}.benchmarks.cudf_merge"]
    done = subprocess.run([*program, *words], capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert re.search(r"^Total data processed +\| 24.41 MiB *$", done.stdout, re.M), done.stdout
    assert re.search(r"^1 +\| [\d.]+ \w+ +\| [\d.]+ \w+/s +\| [\d.]+ \w+/s *$", done.stdout, re.M)


def test_a_worker_that_fails(env):
    words = ["-d", "0,1", "--profile", "/no/such/directory/file"]
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=100, env=env)
    assert done.returncode != 0 and "a process of the benchmark failed" in done.stderr


def test_two_hosts(env, tmp_path):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": env}
    with contextlib.ExitStack() as stack:

        def start(*words):
            process = stack.enter_context(subprocess.Popen([*PROGRAM, "--num-workers", "2", *words], **pipes))
            stack.callback(process.kill)
            return process

        server = start("--server")
        where = json.loads(server.stdout.readline())
        address = f"{where['address']}:{where['port']}"
        nodes = [start("--server-address", address, "--node-idx", str(i)) for i in range(2)]
        for process in (*nodes, server):
            assert process.wait(50) == 0, process.stderr.read()
        assert "cuDF merge benchmark" in server.stdout.read()


def test_options():
    args = options.parse_args(["-d", "0,3", "--chunks-per-dev", "2"])
    assert (args.devs, args.num_node_workers, args.n_chunks) == ([0, 3], 4, 4)
    assert (args.chunk_size, args.frac_match, args.iter, args.warmup_iter) == (4, 0.3, 1, 5)
    args = options.parse_args(["--server-address", "host:80", "--num-workers", "6", "--node-idx", "0"])
    assert args.server_info == args.server_address == {"address": "host", "port": 80} and args.n_chunks == 6
    args = options.parse_args(["--server", "--server-file", "there", "--num-workers", "2"])
    assert args.server_info == "there" and args.n_chunks == 2


@pytest.mark.parametrize(
    "words, said",
    [
        ("--server", "--num-workers"),
        ("--server-file f --num-workers 1", "two workers"),
        ("--server-file f --num-workers 2", "--node-idx"),
        ("", "two chunks"),
        ("--hosts a,b --server", "--server|asyncssh"),
        ("--hosts a,b --num-workers 2", "--num-workers|asyncssh"),
        ("--hosts a,b --node-idx 0", "--node-idx|asyncssh"),
        ("--hosts a,b --server-file f", "--print-commands-only|asyncssh"),
        pytest.param("--hosts a,b", "asyncssh", marks=pytest.mark.skipif(ASYNCSSH, reason="asyncssh is installed")),
    ],
)
def test_options_that_do_not_go_together(words, said):
    with pytest.raises(RuntimeError, match=said):
        options.parse_args(words.split())


def test_an_odd_number_of_chunks(merge, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["cudf_merge", "-d", "0,1,2"])
    with pytest.raises(AssertionError, match="even"):
        merge.main()


@pytest.mark.parametrize("file", ["", " --server-file f"])
def test_commands(merge, monkeypatch, capsys, file):
    monkeypatch.setattr(options, "_check_hosts", lambda args: None)  # without asyncssh, too
    words = "--hosts a,b,c -d 0,1 --frac-match 0.5 --profile p --collect-garbage --print-commands-only" + file
    monkeypatch.setattr(sys, "argv", ["cudf_merge", *words.split()])
    merge.main()
    server, *workers = capsys.readouterr().out.splitlines()
    head, _, command = server.partition(": ")
    assert head == "[a] Server command line" and "--server" in command
    parsed = options.parse_args(shlex.split(command)[3:])
    assert (parsed.server, parsed.n_chunks, parsed.devs, parsed.frac_match) == (True, 4, [0, 1], 0.5)
    for i, worker in enumerate(workers):
        head, _, command = worker.partition(": ")
        end = " --server-file 'f'" if file else " --server-address 'REPLACE WITH SERVER ADDRESS'"
        assert head == f"[{'bc'[i]}] Worker command line" and command.endswith(end)
        command = command.replace("REPLACE WITH SERVER ADDRESS", "a:1")
        parsed = options.parse_args(shlex.split(command)[3:])
        assert (parsed.node_idx, parsed.n_chunks, parsed.profile, parsed.collect_garbage) == (i, 4, "p", True)
    command = merge._get_worker_command({"address": "a", "port": 5}, parsed, 4, 1)
    assert command.endswith(" --server-address a:5")
    parsed.api = "hawser.ucxx"
    command = merge._get_worker_command({"address": "a", "port": 5}, parsed, 4, 1)
    assert shlex.split(command)[1:3] == ["-m", "hawser.ucxx.benchmarks.cudf_merge"]


@pytest.mark.skipif(importlib.util.find_spec("cudf") is not None, reason="cudf is here")
def test_without_cudf():
    done = subprocess.run(
        [sys.executable, "-m", "ucp.benchmarks.cudf_merge"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0 and "needs cupy, cudf and rmm" in done.stderr
