"""Both ends of a connection in one process: on one worker, or the second end in a process of its own."""

import asyncio
import contextlib
import gc
import multiprocessing
import os
import sys
import warnings

import pytest
import uvloop

import hawser


def pytest_report_header():
    found = hawser.library()
    return f"UCX {found['ucx_major']}.{found['ucx_minor']}.{found['ucx_release']}, {found['ucx_reason']}"


@pytest.fixture(params=["asyncio", "uvloop"])
def event_loop_policy(request):
    return asyncio.DefaultEventLoopPolicy() if request.param == "asyncio" else uvloop.EventLoopPolicy()


@pytest.fixture(autouse=True)
def no_loop_is_left(request):
    """After each test with a loop pytest-asyncio sets a new one that nobody closes. A test that runs loops itself
    would drop it, which warns."""
    if "event_loop" not in request.fixturenames:
        with warnings.catch_warnings(action="ignore"), contextlib.suppress(RuntimeError):
            asyncio.get_event_loop_policy().get_event_loop().close()
        asyncio.set_event_loop(None)


@pytest.fixture(params=["sysv,tcp,self", "tcp,self"], ids=["shm", "tcp"])
def context(request):
    with hawser.Context(config={"TLS": request.param}) as context:
        yield context
        gc.collect()


@pytest.fixture
async def worker(context):
    async with hawser.Worker(context, am_ids=range(8)) as worker:
        yield worker


@pytest.fixture
async def pair(worker):
    """Two connected endpoints of one worker."""
    async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
        async with (
            hawser.connect("127.0.0.1", listener.port, worker=worker) as client,
            await listener.accept() as server,
        ):
            yield client, server


@contextlib.contextmanager
def other_process(target, *args):
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
        process.join(20)
        if process.is_alive():
            process.kill()
            process.join()
            raise AssertionError("the other process does not end")


def run_script(text, *args, timeout=60, **env):
    """Runs a program in a new interpreter in development mode; gives its exit code and output.

    Without what asyncio says in that mode of steps that took long: the machine may be busy.
    """
    import re
    import subprocess

    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", text, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **env},
    )
    return done.returncode, re.sub(r"^Executing <.*> took [0-9.]+ seconds\n", "", done.stdout + done.stderr, flags=re.M)
