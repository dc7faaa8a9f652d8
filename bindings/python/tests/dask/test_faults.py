# TIMEOUT: 300
"""What clusters over ucx:// survive: killed and stopped processes, cancelled fetches, strangers on the port."""

import asyncio
import contextlib
import ctypes
import inspect
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import CancelledError

import dask
import dask.array as da
import numpy as np
import pytest
from dask_support import comm_pair, descriptors, nothing_left, spawned, until
from distributed import Client, LocalCluster, wait
from distributed.comm import CommClosedError, connect, listen
from distributed.protocol import to_serialize

import hawser

pytestmark = [pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def leaks(request, forked):
    loop = request.getfixturevalue("event_loop") if inspect.iscoroutinefunction(request.function) else None
    with nothing_left(loop):
        yield


def cluster(n=3, **options):
    return LocalCluster(protocol="ucx", n_workers=n, threads_per_worker=1, dashboard_address=":0", **options)


@pytest.mark.parametrize("method", ["p2p", "tasks"])
def test_a_worker_killed_during_a_shuffle(method):
    """Every block goes from everybody to everybody; what the worker had is made again."""
    with cluster() as c, Client(c) as client:
        x = np.random.default_rng(0).random((1200, 1200))
        y = da.from_array(x, chunks=(100, 1200)).map_blocks(slow).rechunk((1200, 100), method=method)
        future = client.compute((y + 1).sum())
        pids = client.run(os.getpid)
        time.sleep(1)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        assert future.result(timeout=120) == pytest.approx(x.sum() + x.size)


def slow(block):
    time.sleep(0.1)
    return block


def test_a_stopped_worker_is_given_up_and_may_come_back():
    with dask.config.set({"distributed.scheduler.worker-ttl": "4s"}):
        with cluster(2) as c, Client(c) as client:
            pids = client.run(os.getpid)
            address, pid = next(iter(pids.items()))
            kept = client.submit(np.arange, 1_000_000, workers=[address], allow_other_workers=True)
            wait(kept)
            os.kill(pid, signal.SIGSTOP)
            try:
                # Its data is made again elsewhere, once the scheduler has given it up.
                assert client.submit(lambda x: int(x.sum()), kept).result(timeout=90) == 499999500000
            finally:
                # Its nanny may have replaced it meanwhile.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            assert client.submit(sum, [1, 2, 3], pure=False).result(timeout=60) == 6


def test_a_killed_scheduler_ends_its_clients_calls_and_workers(tmp_path):
    file = tmp_path / "scheduler.json"
    module = "distributed.cli.dask_"
    command = [sys.executable, "-m", f"{module}scheduler", "--protocol", "ucx", "--port", "0", "--no-dashboard"]
    scheduler = subprocess.Popen([*command, "--scheduler-file", file])
    worker = None
    try:
        command = [sys.executable, "-m", f"{module}worker", "--no-dashboard", "--nthreads", "1", "--no-nanny"]
        worker = subprocess.Popen([*command, "--scheduler-file", file, "--death-timeout", "10"])
        with dask.config.set({"distributed.comm.timeouts.connect": "3s"}):
            with Client(scheduler_file=str(file), timeout=60) as client:
                client.wait_for_workers(1, timeout=60)
                future = client.submit(time.sleep, 600)
                scheduler.kill()
                scheduler.wait(30)
                started = time.monotonic()
                with pytest.raises((OSError, CancelledError)):
                    future.result(timeout=60)
                assert time.monotonic() - started < 55
        worker.wait(60)
    finally:
        for process in (scheduler, worker):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(30)


async def test_cancelled_fetches_leak_nothing():
    x = np.zeros(30_000_000, "u1")

    async def serve(comm):
        with contextlib.suppress(OSError):
            while True:
                await comm.read()
                await comm.write({"x": to_serialize(x)})

    async def fetch():
        comm = await connect(address)
        try:
            await comm.write("get")
            return await comm.read()
        finally:
            comm.abort()

    async with listen("ucx://127.0.0.1:0", serve) as listener:
        address = listener.contact_address
        await fetch()
        before, threads = None, None
        for i in range(30):
            task = asyncio.ensure_future(fetch())
            await asyncio.sleep(0.002 * (i % 15))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if i == 9:
                await asyncio.sleep(0.5)
                before, threads = descriptors(), threading.active_count()
        assert (await fetch())["x"].nbytes == x.nbytes
        await until(lambda: descriptors() <= before + 8, 20)
        assert threading.active_count() <= threads


GARBAGE = {
    "nothing": b"",
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(4096),
    "ones": b"\xff" * 4096,
    "random": np.random.default_rng(7).bytes(65536),
    "tls": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "half a tls hello": bytes.fromhex("1603010200"),
    "tcp comm": (1).to_bytes(8, "little") + (40).to_bytes(8, "little") + bytes(40),
}


def refused(caplog):
    """How many the log says were turned away."""
    found = (re.search(r"refused (\d+) connections: silent", record.getMessage()) for record in caplog.records)
    return sum(int(match[1]) for match in found if match)


async def test_strangers_on_the_port(caplog):
    """They are refused, each is said once, and peers come and talk as before."""
    caplog.set_level(logging.WARNING)
    async with comm_pair() as (a, b):

        async def echo(comm):
            with contextlib.suppress(OSError):
                while True:
                    await comm.write(await comm.read())

        async with listen("ucx://127.0.0.1:0", echo) as listener:
            address = listener.contact_address
            host, port = address.removeprefix("ucx://").split(":")
            strangers = []
            for data in GARBAGE.values():
                for _ in range(3):
                    s = socket.create_connection((host, int(port)), 5)
                    s.setblocking(False)
                    with contextlib.suppress(OSError):
                        s.send(data)
                    strangers.append(s)
                comm = await connect(address)
                await comm.write("x")
                assert await comm.read() == "x"
                await comm.close()
            await until(lambda: refused(caplog) >= len(strangers), 60)
            for s in strangers:
                s.close()
            await a.write("still here")
            assert await b.read() == "still here"
    assert refused(caplog) == len(strangers) and len(caplog.records) <= len(strangers), caplog.records


def test_a_tcp_peer_of_dask_does_no_harm():
    with cluster(1) as c, Client(c) as client:
        with pytest.raises(OSError):
            client.sync(connect, c.scheduler_address.replace("ucx", "tcp"), timeout=3)
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3


def _compute(pipe, seconds):
    async def handle(comm):
        await comm.write(await comm.read())

    async def main():
        async with listen("ucx://127.0.0.1", handle) as listener:
            pipe.send(listener.contact_address)
            ctypes.PyDLL(None).sleep(seconds)  # as an extension that keeps the interpreter's lock
            await asyncio.sleep(30)

    asyncio.run(main())


async def test_a_peer_that_computes_is_connected_to():
    """For longer than connecting may take: the kernel answers for tcp, and the library here."""
    with spawned(_compute, 6) as (pipe, _):
        address = pipe.recv()
        await asyncio.sleep(0.2)
        began = time.monotonic()
        comm = await connect(address, timeout=3)
        assert time.monotonic() - began > 3, "it did not compute"
        await comm.write("there")
        assert await comm.read() == "there"
        await comm.close()


def _take_late(pipe, seconds):
    async def handle(comm):
        taken = [await comm.read()]
        pipe.send("computing")
        ctypes.PyDLL(None).sleep(seconds)
        with contextlib.suppress(CommClosedError):
            while True:
                taken.append(await comm.read())
        pipe.send(taken)

    async def main():
        async with listen("ucx://127.0.0.1", handle) as listener:
            pipe.send(listener.contact_address)
            await asyncio.sleep(60)

    asyncio.run(main())


async def test_closing_does_not_wait_for_a_peer_that_computes():
    with spawned(_take_late, 7) as (pipe, _):
        comm = await connect(pipe.recv())
        await comm.write("first")
        await until(pipe.poll)
        assert pipe.recv() == "computing"
        began = time.monotonic()
        await comm.write("last")
        await comm.close()
        assert time.monotonic() - began < 5, "closing waited as long as it may"
        await until(pipe.poll)
        assert pipe.recv() == ["first", "last"]


async def test_closing_does_not_wait_for_a_peer_that_is_stopped():
    """A server of Dask that is told to end once more while it closes its connections is cancelled there, and ends only
    if it has not got to wait."""
    with spawned(_take_late, 0) as (pipe, process):
        comm = await connect(pipe.recv())
        await comm.write("first")
        await until(pipe.poll)
        os.kill(process.pid, signal.SIGSTOP)
        began = time.monotonic()
        await comm.close()
        assert time.monotonic() - began < 1
        os.kill(process.pid, signal.SIGCONT)
        assert pipe.recv() == "computing"
        await until(pipe.poll)
        assert pipe.recv() == ["first"]


LEAVING = """
import os, signal, sys
from distributed import Client, fire_and_forget

client = Client(scheduler_file=sys.argv[1])
os.kill(int(sys.argv[2]), signal.SIGSTOP)
for _ in range(20):
    fire_and_forget(client.submit(len, os.urandom(int(sys.argv[3])), pure=False))
"""


@pytest.mark.parametrize("n", [10, 100_000])
def test_a_program_ends_although_the_scheduler_is_stopped(n, tmp_path):
    """It has not closed its client: Dask does not wait for its minute, and what was written gets there."""
    file = tmp_path / "scheduler.json"
    command = ["-m", "distributed.cli.dask_scheduler", "--protocol", "ucx", "--port", "0", "--no-dashboard"]
    scheduler = subprocess.Popen([sys.executable, *command, "--scheduler-file", file])
    try:
        while not file.exists():
            time.sleep(0.1)
        program = [sys.executable, "-c", LEAVING, file, str(scheduler.pid), str(n)]
        with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as leaving:
            with contextlib.suppress(subprocess.TimeoutExpired):
                leaving.wait(8)
            scheduler.send_signal(signal.SIGCONT)
            assert leaving.wait(30) == 0
            assert "TimeoutError" not in leaving.stderr.read()
        # A batch of small tasks is one message of several fragments: UCX 1.13 drops those of a peer that is gone.
        arrives = n > 10 or hawser.library()["ucx_minor"] > 13
        with Client(scheduler_file=str(file), timeout=30) as client:
            end = time.monotonic() + 10  # it takes one message after the other
            while (found := client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))) != 20:
                if not arrives or time.monotonic() > end:
                    break
                time.sleep(0.1)
        assert found == 20 or not arrives
    finally:
        scheduler.kill()
        scheduler.wait()
