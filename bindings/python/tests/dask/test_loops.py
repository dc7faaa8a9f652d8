# TIMEOUT: 240
"""Event loops that end while connections are there, and several of them in one process."""

import os
import subprocess
import sys

import pytest

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
