"""Arrays of a GPU through hawser.ucp, as UCX-Py's programs send and receive them."""

import asyncio
import multiprocessing
import os

import pytest
from gpu_support import GpuArray, use
from ucp_support import connected, fresh_ucp  # noqa: F401

import ucp

SIZES = [8, 1000, 9000, 70_000, 1 << 20]


@pytest.mark.parametrize("size", SIZES)
async def test_there_and_back(size):
    async def serve(ep):
        array = GpuArray(size)
        await ep.recv(array)
        await ep.send(array)
        await ep.close()

    listener, ep = await connected(serve)
    data, back = os.urandom(size), GpuArray(size)
    await ep.send(GpuArray(data))
    await ep.recv(back)
    assert bytes(back) == data
    assert ep.cuda_support()
    await ep.close()
    listener.close()


@pytest.mark.parametrize("size", SIZES)
async def test_object_into_what_an_allocator_gives(size):
    async def serve(ep):
        await ep.send_obj(await ep.recv_obj(allocator=GpuArray))
        await ep.close()

    listener, ep = await connected(serve)
    data = os.urandom(size)
    await ep.send_obj(GpuArray(data))
    back = await ep.recv_obj(allocator=GpuArray)
    assert isinstance(back, GpuArray) and bytes(back) == data
    await ep.close()
    listener.close()


@pytest.mark.parametrize("size", SIZES)
async def test_active_message(size):
    """Small ones come in memory of the host, as they do in UCX-Py."""
    got = asyncio.get_running_loop().create_future()

    async def serve(ep):
        ucp.register_am_allocator(GpuArray, "cuda")
        got.set_result(await ep.am_recv())
        await ep.close()

    listener, ep = await connected(serve)
    data = os.urandom(size)
    ucp.register_am_allocator(GpuArray, "cuda")
    await ep.am_send(GpuArray(data))
    array = await got
    assert bytes(array) == data
    assert isinstance(array, GpuArray) or size < 100_000
    await ep.close()
    listener.close()


async def echo(port, address):
    use()
    ep = await ucp.create_endpoint(address, port)
    for size in SIZES:
        array = GpuArray(size)
        await ep.recv(array)
        await ep.send(array)
    await ep.close()


def run_echo(port, address):
    asyncio.run(echo(port, address))


async def test_between_processes():
    ended = asyncio.get_running_loop().create_future()

    async def serve(ep):
        try:
            for size in SIZES:
                data, back = os.urandom(size), GpuArray(size)
                await ep.send(GpuArray(data))
                await ep.recv(back)
                assert bytes(back) == data
            ended.set_result(None)
        except BaseException as e:
            ended.set_exception(e)

    listener = ucp.create_listener(serve)
    child = multiprocessing.get_context("spawn").Process(target=run_echo, args=(listener.port, "127.0.0.1"))
    child.start()
    await asyncio.wait_for(ended, 60)
    await asyncio.to_thread(child.join, 60)
    assert child.exitcode == 0
    listener.close()
