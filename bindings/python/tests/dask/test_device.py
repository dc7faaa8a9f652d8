"""Arrays of a GPU between Dask's processes: they stay on the GPU, where both ends have one."""

import asyncio
import ctypes
import multiprocessing
import os

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.comm import connect, listen
from distributed.protocol import to_serialize
from gpu_support import GpuArray, driver, enter, use

import hawser.dask
from hawser.dask import _device

pytestmark = [pytest.mark.filterwarnings("default")]
SIZES = [0, 8, 9000, 70_000, 1 << 20]


@pytest.fixture(autouse=True)
def gpu():
    use()


def contents(array):
    """Bytes of an array of any class, by the driver: a processor cannot read them."""
    interface = array.__cuda_array_interface__
    n = int(np.prod(interface["shape"])) * int(interface["typestr"][2:])
    out = ctypes.create_string_buffer(max(n, 1))
    enter()
    if n:
        assert driver.cuMemcpyDtoH_v2(out, ctypes.c_void_p(interface["data"][0]), ctypes.c_size_t(n)) == 0
    return out.raw[:n]


async def echo(comm):
    while True:
        try:
            await comm.write(to_serialize(await comm.read()))
        except OSError:
            return


@pytest.mark.parametrize("scheme", ["ucx", "hawser"])
async def test_arrays_there_and_back(scheme):
    async with listen(f"{scheme}://127.0.0.1:0", echo) as listener:
        comm = await connect(listener.contact_address)
        for size in SIZES:
            data = os.urandom(size)
            await comm.write(to_serialize(GpuArray(data)))
            back = await comm.read()
            assert contents(back) == data
            assert isinstance(back, _device.DeviceArray)
        await comm.close()


async def test_arrays_among_others_in_one_message():
    async with listen("ucx://127.0.0.1:0", echo) as listener:
        comm = await connect(listener.contact_address)
        data, host = os.urandom(100_000), np.arange(50_000)
        await comm.write({"a": to_serialize(GpuArray(data)), "b": to_serialize(host), "c": b"small"})
        back = await comm.read()
        back = getattr(back, "data", back)
        assert contents(back["a"]) == data
        assert (back["b"] == host).all() and back["c"] == b"small"
        await comm.close()


async def test_memory_goes_back():
    """A buffer of the GPU's lives as long as what refers to it."""
    async with listen("ucx://127.0.0.1:0", echo) as listener:
        comm = await connect(listener.contact_address)
        for _ in range(40):  # of 1 GiB that this GPU has at least
            await comm.write(to_serialize(GpuArray(32 << 20)))
            await comm.read()
        await comm.close()


class Portable(GpuArray):
    """Dask's other families know it too: as bytes."""

    def __reduce__(self):
        return bytes, (bytes(self),)


async def ask(address):
    comm = await connect(address)
    got = await comm.read()
    await comm.close()
    return got


def run_ask(address, size):
    got = asyncio.run(ask(address))
    assert isinstance(got, bytes) and len(got) == size, f"{type(got)} {len(got)} {got!r:.80}"


async def test_a_process_without_a_cuda_context_gets_what_it_can_read():
    async def give(comm):
        await comm.write(to_serialize(Portable(50_000)))

    async with listen("ucx://127.0.0.1:0", give) as listener:
        child = multiprocessing.get_context("spawn").Process(target=run_ask, args=(listener.contact_address, 50_000))
        child.start()
        await asyncio.to_thread(child.join, 60)
        assert child.exitcode == 0
        got = await ask(listener.contact_address)
        assert isinstance(got, _device.DeviceArray) and got.nbytes == 50_000


def make(seed):
    return GpuArray(np.random.default_rng(seed).bytes(300_000))


def read(array):
    return type(array).__name__, contents(array)


@pytest.fixture
def gpu_for_children(monkeypatch):
    """Processes that are started find the driver by its name, as on a machine with a GPU."""
    monkeypatch.setenv("LD_LIBRARY_PATH", os.environ["HAWSER_SOFT_GPU"], prepend=":")


def moved(client, a, b):
    """An array that worker a makes is read by worker b, in memory of its GPU, and gathered here."""
    x = client.submit(make, 1, workers=[a])
    y = client.submit(read, x, workers=[b])
    assert y.result(timeout=60) == ("DeviceArray", np.random.default_rng(1).bytes(300_000))
    assert contents(x.result(timeout=60)) == np.random.default_rng(1).bytes(300_000)


def test_between_workers(gpu_for_children):
    with (
        dask.config.set({"distributed.comm.ucx.create-cuda-context": True}),
        LocalCluster(n_workers=2, threads_per_worker=1, protocol="ucx", dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        moved(client, *client.scheduler_info()["workers"])


def test_a_cluster_of_gpus(gpu_for_children):
    """One worker for each GPU, which it has made a CUDA context on; the client has one, too."""
    with hawser.dask.LocalCluster(protocol="ucx", dashboard_address=":0") as cluster, Client(cluster) as client:
        client.wait_for_workers(1)
        [address] = client.scheduler_info()["workers"]
        visible = client.run(lambda: __import__("os").environ.get("CUDA_VISIBLE_DEVICES"))
        assert visible == {address: "0"}
        x = client.submit(make, 2)
        assert contents(x.result(timeout=60)) == np.random.default_rng(2).bytes(300_000)
