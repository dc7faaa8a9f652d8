# TIMEOUT: 240
"""Event loops that end while connections are there, and several of them in one process."""

import asyncio
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from dask_support import descriptors, nothing_left
from distributed import Client, LocalCluster

# One loop after another; each is closed without its tasks, as Dask's own tests and many programs do.
ENDS = """
import asyncio, gc, sys
from distributed.comm import connect, listen
import hawser
from hawser.dask._workers import loop_worker

async def read(comm):
    while True:
        await comm.read()

async def in_the_handshake():
    listener = await listen("ucx://127.0.0.1:0", read)
    host, port = listener.contact_address.removeprefix("ucx://").split(":")
    peer = await hawser.connect(host, int(port), worker=loop_worker(host))
    await asyncio.sleep(0.2)
    listener.stop()

async def connected():
    listener = await listen("ucx://127.0.0.1:0", read)
    comm = await connect(listener.contact_address)
    await asyncio.sleep(0.1)
    listener.stop()
    kept.append(comm)

async def left_by_the_peer():
    await connected()
    await kept.pop().close()
    await asyncio.sleep(0.1)

kept = []
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.run_until_complete({}())
loop.close()
for comm in kept:
    comm.abort()
asyncio.set_event_loop(None)
del loop
gc.collect()
print("done")
"""


@pytest.mark.parametrize("how", ["in_the_handshake", "connected", "left_by_the_peer"])
def test_a_loop_that_ends_with_its_connections_says_nothing(how):
    command = [sys.executable, "-c", ENDS.replace("{}()", how + "()")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": ""})
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["done"], "")


def use(address, i, failures):
    """Clients with loops of their own, as a thread of a program has them: Dask's and this thread's."""

    async def gather():
        async with Client(address, asynchronous=True, set_as_default=False) as client:
            blocks = await client.gather(client.map(lambda x: np.full(200_000, x), range(6), pure=False))
            assert [int(block[-1]) for block in blocks] == list(range(6))

    try:
        for _ in range(2):
            with Client(address, set_as_default=False) as client:
                assert client.submit(lambda x: x + 1, i, pure=False).result(timeout=120) == i + 1
            asyncio.run(asyncio.wait_for(gather(), 120))
    except BaseException as e:
        failures.append(e)


# Of a socket that Dask leaves to the collector where the port of its dashboard is taken.
@pytest.mark.filterwarnings("default")
def test_clients_of_several_threads_and_loops():
    """They work at the same time, the number of descriptors does not grow, and all is gone in the end."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "processes": True}
    with nothing_left(), LocalCluster(protocol="ucx", **options) as cluster:
        open_after = []
        for _ in range(4):
            failures = []
            threads = [
                threading.Thread(target=use, args=(cluster.scheduler_address, i, failures), daemon=True)
                for i in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(240)
            assert not failures and not any(thread.is_alive() for thread in threads), failures
            open_after.append(descriptors())
        # A connection has about 11 of them, and what is kept for the next ones varies by a few.
        assert open_after[-1] <= max(open_after[:2]) + 66, open_after
        with Client(cluster) as client:
            client.restart(timeout=120)
            assert client.submit(sum, [1, 2]).result(timeout=120) == 3


FORKED = """
import asyncio, contextlib, os, sys
from distributed.comm import CommClosedError, connect, listen


async def main():
    async def hold(comm):
        with contextlib.suppress(CommClosedError):
            while True:
                await comm.read()

    async with listen("ucx://127.0.0.1:0", hold) as listener:
        comm = await connect(listener.contact_address)
        if os.fork() == 0:
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        await comm.write("still here")
        assert not comm.closed()
        await comm.close()


asyncio.run(main())
"""


def test_a_fork_that_ends_as_programs_do_says_nothing():
    """And its parent's connections stay."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


CONNECTS_IN_A_CHILD = """
import asyncio, os, sys, time
from distributed.comm import CommClosedError, connect, listen


async def main():
    async with listen("ucx://127.0.0.1:0", lambda comm: None) as listener:
        await (await connect(listener.contact_address)).close()
        return listener.contact_address


async def child(address):
    await connect(address, timeout=30)


address = asyncio.run(main())
if os.fork() == 0:
    start = time.monotonic()
    try:
        asyncio.run(child(address))
    except CommClosedError as e:
        print(e, "soon" if time.monotonic() - start < 10 else "late", flush=True)
    os._exit(0)
os.wait()
"""


def test_a_connection_in_a_child_of_fork_is_refused_at_once():
    done = subprocess.run([sys.executable, "-c", CONNECTS_IN_A_CHILD], capture_output=True, text=True, timeout=60)
    assert "FORKED: the library was used before fork" in done.stdout
    assert done.stdout.rstrip().endswith("soon")
