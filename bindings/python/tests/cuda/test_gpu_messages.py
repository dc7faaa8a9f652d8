"""Arrays of a GPU through hawser: every kind of message, over shared memory and TCP, between processes too."""

import asyncio
import contextlib
import multiprocessing
import os

import pytest
from gpu_support import SOFT, GpuArray, use

import hawser
import hawser.sync

SIZES = [0, 8, 1000, 9000, 70_000, 1 << 20]


@pytest.fixture(params=["sysv,cma,tcp,self,cuda", "tcp,self,cuda"], ids=["shm", "tcp"])
def context(request):
    with hawser.Context(["tag", "stream", "am", "rma", "atomic"], config={"TLS": request.param}) as context:
        yield context


@pytest.mark.parametrize("late", [False, True], ids=["receive first", "send first"])
@pytest.mark.parametrize("ends", ["gpu gpu", "gpu host", "host gpu"])
@pytest.mark.parametrize("size", SIZES)
async def test_tagged(pair, size, ends, late):
    client, server = pair
    data = os.urandom(size)
    source, target = ends.split()
    out = GpuArray(data) if source == "gpu" else data
    into = GpuArray(size) if target == "gpu" else bytearray(size)
    receive = None if late else server.recv(into, tag=3)
    send = client.send(out, tag=3)
    if late:
        await asyncio.sleep(0.01)
        receive = server.recv(into, tag=3)
    assert await receive == size
    await send
    assert bytes(into) == data


@pytest.mark.parametrize("size", SIZES[1:])
async def test_active_message(pair, size):
    client, server = pair
    data = os.urandom(size)
    sending = asyncio.ensure_future(client.send_am(GpuArray(data), 2, b"head"))
    header, body = await server.recv_am(2)
    assert header == b"head" and len(body) == size
    if body.pending:
        into = GpuArray(size)
        await body.fetch(into)
        assert bytes(into) == data
    else:
        assert bytes(body) == data
    await sending


@pytest.mark.parametrize("size", SIZES[1:])
async def test_stream(pair, size):
    client, server = pair
    data = os.urandom(size)
    into = GpuArray(size)
    send = client.stream_send(GpuArray(data))
    assert await server.stream_recv(into) == size
    await send
    assert bytes(into) == data


@pytest.mark.parametrize("size", SIZES)
async def test_segments_of_host_and_gpu(pair, size):
    client, server = pair
    data, small = os.urandom(size), os.urandom(100)
    send = client.send_multi([small, GpuArray(data), small], tag=4)
    segments = await server.recv_multi(tag=4)
    parts = [bytearray(100), GpuArray(size), GpuArray(100)]
    await segments.fetch(parts)
    await send
    assert [bytes(part) for part in parts] == [small, data, small]


@pytest.mark.parametrize("size", SIZES[1:])
async def test_put_and_get(pair, context, size):
    client, _ = pair
    before, after, into = os.urandom(size), os.urandom(size), GpuArray(size)
    with context.mem_register(GpuArray(before)) as memory:
        key = client.rkey_unpack(memory.rkey_pack())
        assert key.kind == hawser.Memory.CUDA
        await key.get(into, 0)
        assert bytes(into) == before
        await key.put(GpuArray(after), 0)
        await client.flush()
        await key.get(into, 0)
        assert bytes(into) == after
        with pytest.raises(hawser.BufferKindError):
            await key.atomic("add", 1)
        key.close()


async def test_what_is_received_into_nothing_stays_whole(pair):
    """A receive that is too short, and the next one."""
    client, server = pair
    await client.send(bytes(100), tag=1)
    await client.send(b"next", tag=1)
    short, right = GpuArray(10), GpuArray(4)
    with pytest.raises(hawser.TruncatedError):
        await server.recv(short, tag=1)
    assert await server.recv(right, tag=1) == 4
    assert bytes(right) == b"next"


def echo(port, count):
    use()
    with hawser.sync.connect("127.0.0.1", port) as endpoint:
        for _ in range(count):
            size = int.from_bytes(endpoint.recv(tag=1), "little")
            array = GpuArray(size)
            endpoint.recv(array, tag=2)
            endpoint.send(array, tag=3)
        endpoint.recv(tag=4)


@contextlib.contextmanager
def echoing(count):
    """An endpoint to a process that sends back what it gets so often, and the process."""
    with hawser.sync.listen(host="127.0.0.1") as listener:
        child = multiprocessing.get_context("spawn").Process(target=echo, args=(listener.port, count))
        child.start()
        with listener.accept(timeout=60) as endpoint:
            yield endpoint, child
        child.join(60)


def there_and_back(endpoint, size):
    data, back = os.urandom(size), GpuArray(size)
    endpoint.send(size.to_bytes(8, "little"), tag=1)
    endpoint.send(GpuArray(data), tag=2)
    assert endpoint.recv(back, tag=3, timeout=60) == size
    assert bytes(back) == data


def test_between_processes():
    with echoing(len(SIZES)) as (endpoint, child):
        for size in SIZES:
            there_and_back(endpoint, size)
        if SOFT and hawser.library()["ucx_minor"] >= 22:
            assert "cuda_ipc" in endpoint.info()["lanes"]
        endpoint.send(b"done", tag=4)
    assert child.exitcode == 0


def test_a_killed_peer_takes_only_its_own_connection():
    with echoing(1) as (innocent, _), echoing(1) as (endpoint, child):
        endpoint.send((1 << 20).to_bytes(8, "little"), tag=1)
        child.kill()
        with pytest.raises(hawser.HawserError):
            endpoint.recv(GpuArray(1 << 20), tag=3, timeout=60)
        there_and_back(innocent, 1 << 20)
        innocent.send(b"done", tag=4)
