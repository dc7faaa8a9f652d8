"""Pairs of comms, other processes, waiting."""

import asyncio
import contextlib
import glob
import multiprocessing
import os
import socket

from distributed.comm import connect, listen

import hawser


@contextlib.asynccontextmanager
async def comm_pair(address="ucx://127.0.0.1", listen_args=None, connect_args=None):
    """Two connected comms: the connector's and the listener's."""
    accepted = asyncio.get_running_loop().create_future()

    async def handle(comm):
        accepted.set_result(comm)

    async with listen(address, handle, **(listen_args or {})) as listener:
        a = await connect(listener.contact_address, **(connect_args or {}))
        b = await accepted
        try:
            yield a, b
        finally:
            await asyncio.gather(a.close(), b.close())


@contextlib.contextmanager
def spawned(target, *args):
    """Runs target(pipe, *args) in a new process; gives the pipe's other end and the process."""
    mp = multiprocessing.get_context("spawn")
    here, there = mp.Pipe()
    process = mp.Process(target=target, args=(there, *args), daemon=True)
    process.start()
    there.close()
    try:
        yield here, process
    finally:
        here.close()
        process.kill()
        process.join(20)


async def until(condition, seconds=10.0):
    """Wait for something that comes without being asked for."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


def has_ipv6():
    ucx = hawser.library()
    if (ucx["ucx_major"], ucx["ucx_minor"]) < (1, 14):
        return False
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


def orphans():
    """Segments in /dev/shm that no process has mapped."""
    names = set(os.listdir("/dev/shm"))
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError), open(maps) as file:
            text = file.read()
            names = {name for name in names if name not in text}
    return names
