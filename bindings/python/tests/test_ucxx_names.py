"""UCXX's modules that programs rarely name: the handshake, ways to make progress, helpers of tests. TIMEOUT: 120"""

import asyncio
import importlib.util
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from ucp_support import event_loop_policy, fresh_ucxx  # noqa: F401

from hawser import ucxx
from hawser.ucxx import _cuda_context
from hawser.ucxx._lib.libucxx import UCXContext, UCXEndpoint, UCXListener, UCXWorker, UCXXTag
from hawser.ucxx._lib_async import continuous_ucx_progress, notifier_thread, utils_test
from hawser.ucxx._lib_async.exchange_peer_info import exchange_peer_info
from hawser.ucxx.examples.python_future_task_app import PythonFutureTaskApplication


@pytest.mark.parametrize(
    "name", ["_cuda_context", "_version", "benchmarks.asyncssh", "benchmarks.backends.base", "benchmarks.utils"]
)
def test_modules(name):
    module = importlib.import_module(f"hawser.ucxx.{name}")
    assert all(hasattr(module, each) for each in getattr(module, "__all__", ()))


def test_version():
    from hawser.ucxx._version import __git_commit__, __version__

    assert (ucxx.__version__, ucxx.__git_commit__) == (__version__, __git_commit__)


# ---- Connecting, and progress ----


async def connected(worker):
    """Two endpoints of the core that are connected with each other: the listener's and the other's."""
    met = []
    listener = UCXListener.create(worker, 0, met.append, deliver_endpoint=True)
    client = UCXEndpoint.create(worker, "127.0.0.1", listener.port, True)
    while not met:
        worker.progress()
        await asyncio.sleep(0)
    return met[0], client, listener


async def test_handshake():
    server, client, listener = await connected(UCXWorker(UCXContext()))
    told = await asyncio.gather(exchange_peer_info(server, 11, True), exchange_peer_info(client, 22, listener=False))
    assert [each["msg_tag"] for each in told] == [22, 11]
    server.stream_send(np.array([5, 6], "u8"))
    with pytest.raises(RuntimeError, match="Checksum"):
        await exchange_peer_info(client, 22, False)
    with pytest.raises(TimeoutError):
        await exchange_peer_info(client, 22, False, connect_timeout=0.05)
    listener.close()


@pytest.mark.parametrize("mode", ["BlockingMode", "PollingMode", "ThreadMode"])
async def test_ways_to_make_progress(mode):
    worker = UCXWorker(UCXContext())
    task = getattr(continuous_ucx_progress, mode)(worker, asyncio.get_running_loop())
    assert isinstance(task, continuous_ucx_progress.ProgressTask) and task.event_loop is asyncio.get_running_loop()
    server, client, listener = await connected(worker)
    into = bytearray(3)
    receive, send = server.tag_recv(into, UCXXTag(1)), client.tag_send(b"abc", UCXXTag(1))
    for request in (send, receive):
        await asyncio.wait_for(request.wait(), 20)
    assert into == b"abc"
    listener.close()
    threads = threading.active_count()
    del task
    assert threading.active_count() == threads - (mode == "ThreadMode")
    notifier_thread._notifierThread(asyncio.get_running_loop(), worker, None)


# ---- Examples ----


def run_example(name, *options):
    command = [sys.executable, "-W", "error", "-m", f"hawser.ucxx.examples.{name}", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("mode", ["thread", "blocking"])
@pytest.mark.parametrize("how", [(), ("--asyncio-wait-future",), ("--asyncio-wait-yield", "--multi-buffer-transfer")])
def test_basic_example(mode, how):
    done = run_example("basic", "--port", "0", "--progress-mode", mode, *how)
    assert (done.stdout, done.stderr) == ("3 arrays came as they were sent: 50, 500, 50000 bytes\n", "")


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="cupy is installed")
def test_basic_example_without_cupy():
    done = run_example("basic", "--object-type", "rmm")
    assert done.returncode != 0 and done.stderr.startswith("--object-type rmm needs cupy and rmm")


def test_future_example():
    done = run_example("python_future_task_example")
    assert (done.stdout, done.stderr) == (f"Tasks submitted\nFuture results={list(range(10))}\n", "")


async def test_future_application():
    application = PythonFutureTaskApplication(asyncio.get_running_loop())
    forever = application.submit_until_close(id=7)
    soon, cancelled = (application.submit(0.02, i) for i in (1, 2))
    cancelled.cancel()
    application.wait_until_task_accepted()
    assert await soon == 1 and not forever.done()
    application.close()
    assert await asyncio.wait_for(forever, 20) == 7
    with pytest.raises(RuntimeError, match="closed"):
        application.submit()


# ---- Helpers of UCXX's tests ----


@pytest.mark.parametrize("sent, received", [("send", "recv"), ("am_send", "am_recv")])
async def test_frames(sent, received):
    pytest.importorskip("distributed")
    from distributed.comm.utils import to_frames
    from distributed.protocol import to_serialize

    met = asyncio.get_running_loop().create_future()
    listener = ucxx.create_listener(met.set_result)
    client = await ucxx.create_endpoint(ucxx.get_address(), listener.port)
    message = {"op": "update", "x": to_serialize(np.arange(1000)), "nothing": b""}
    frames = await to_frames(message)
    sending = asyncio.ensure_future(getattr(utils_test, sent)(client, frames))
    came, loaded = await getattr(utils_test, received)(await met)
    await sending
    assert [bytes(frame) for frame in came] == [bytes(frame) for frame in frames]
    assert loaded["op"] == "update" and (loaded["x"] == np.arange(1000)).all()
    listener.close()
    await client.close()


def test_devices(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,1")
    assert utils_test.get_cuda_devices() == ["3", "1"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert utils_test.get_cuda_devices() == list(range(utils_test.get_num_gpus()))
    for name in utils_test.normal_env:
        monkeypatch.setenv(name, "")
    utils_test.set_env()
    assert utils_test.os.environ["UCX_MEMTYPE_CACHE"] == "n"


# ---- CUDA's contexts ----

DRIVER = r"""
#include <stdio.h>
#define CALL(name, ...) int name(__VA_ARGS__) { puts(#name); fflush(stdout);
CALL(cuInit, unsigned flags) return 0; }
CALL(cuDeviceGet, int *device, int number) *device = number + 40; return number == 7 ? 101 : 0; }
CALL(cuDevicePrimaryCtxRetain, void **context, int device) *context = (void *)(1L << 40 | device); return 0; }
CALL(cuCtxSetCurrent, void *context) return context == (void *)(1L << 40 | 43) ? 0 : 1; }
CALL(cuCtxSynchronize, void) return 0; }
int cuGetErrorName(int error, const char **name) { *name = "CUDA_ERROR_INVALID_DEVICE"; return error != 101; }
"""
PROGRAM = """
from hawser.ucxx._cuda_context import ensure_cuda_context, synchronize_default_stream
ensure_cuda_context(3)
synchronize_default_stream(3)
for wrong in (7, 0):
    try:
        ensure_cuda_context(wrong)
    except RuntimeError as e:
        print(e)
"""
CONTEXT = ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for a driver of no GPU")
def test_contexts(tmp_path, monkeypatch):
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path), prepend=":")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    first = [*CONTEXT, *CONTEXT, "cuCtxSynchronize"]
    wrong = [*CONTEXT[:2], "CUDA: CUDA_ERROR_INVALID_DEVICE", *CONTEXT, "CUDA: error 1"]
    assert (done.stdout.split("\n")[:-1], done.stderr) == ([*first, *wrong], "")


def test_no_driver(monkeypatch):
    def load(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(_cuda_context.ctypes, "CDLL", load)
    with pytest.raises(ImportError, match=r"no CUDA driver: libcuda.so.1"):
        _cuda_context.ensure_cuda_context()
