"""Pairs of comms, other processes, waiting."""

import asyncio
import contextlib
import gc
import glob
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import socket
import threading
import time

from distributed.comm import connect, listen

import hawser
from hawser.dask import _workers


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


def fork_server():
    """The server that workers are forked by has imported what each of them needs, and no UCX: that takes nearly all of
    the 1.5 s of a processor which it costs to spawn one. Their environment is that of when this was called first, and
    what `distributed.nanny.environ` holds."""
    # `pytest` is what runs here: each process imports it as its own.
    modules = ["distributed", "distributed.nanny", "dask.array", "pytest"]
    multiprocessing.get_context("forkserver").set_forkserver_preload(modules)
    multiprocessing.forkserver.ensure_running()


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


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def opened():
    """Each descriptor with what it is."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found


def swept(before, seconds=20):
    """Whether no segment of a killed process stays."""
    deadline = time.monotonic() + seconds
    while {name for name in orphans() if name.startswith("ucx_shm_")} - before:
        if time.monotonic() > deadline:
            return False
        # What was killed while it made a segment leaves it to the next context.
        hawser.Context().close()
        time.sleep(0.5)
    return True


# Dask has one pool of these for a process, which is never ended.
_OF_DASK = ("Dask-Offload",)


def _threads():
    return {thread for thread in threading.enumerate() if not thread.name.startswith(_OF_DASK)}


@contextlib.contextmanager
def nothing_left(loop=None, seconds=30, marked=True):
    """What runs within leaves no descriptor, thread, process or segment behind, once all is closed.
    A loop whose connections are to be closed runs for a moment. marked: look for segments, too. One stays of a process
    that is killed after it got the segment and before it marked it as one that ends with its users."""
    multiprocessing.resource_tracker.ensure_running()
    _workers._close_all()
    gc.collect()
    open_before, threads, segments = opened(), _threads(), orphans()
    yield
    _workers._close_all()
    if loop is not None:
        loop.run_until_complete(asyncio.sleep(0.1))
    deadline = time.monotonic() + seconds
    while left := [
        *(opened() - open_before),
        *(_threads() - threads),
        *multiprocessing.active_children(),
    ]:
        assert time.monotonic() < deadline, left
        gc.collect()
        time.sleep(0.2)
    assert not marked or swept(segments), orphans() - segments


def orphans():
    """Segments that no process has mapped: files in /dev/shm, and System V segments of this user. Without semaphores:
    neither UCX nor the library has any, and those of other programs that use multiprocessing come and go."""
    names = {name for name in os.listdir("/dev/shm") if not name.startswith("sem.")}
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError), open(maps) as file:
            text = file.read()
            names = {name for name in names if name not in text}
    with open("/proc/sysvipc/shm") as table:
        head, *lines = (line.split() for line in table)
    for line in lines:
        segment = dict(zip(head, line, strict=True))
        if segment["nattch"] == "0" and int(segment["uid"]) == os.getuid():
            names.add(f"ucx_shm_sysv_{segment['shmid']}")
    return names
