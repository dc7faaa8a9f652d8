"""A CUDA stream given to a send: the data leaves once the stream's work is done. SANITIZED

A libcuda of the tests' own stands in for the driver; the payload is the host's."""

import asyncio
import ctypes
import gc
import os
import threading

import pytest

# Before the library looks for libcuda; UCX's own CUDA must not meet the stub.
os.environ["HAWSER_CUDA"] = os.environ["HAWSER_STUB_CUDA"]
os.environ["UCX_TLS"] = "sysv,cma,self,tcp"

import hawser
import hawser.sync
from hawser._memory import stream_number


class Call(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("argument", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("thread", ctypes.c_long),
        ("result", ctypes.c_int),
    ]


class Control(ctypes.Structure):
    _fields_ = [
        ("initialize", ctypes.CFUNCTYPE(None)),
        ("pointer", ctypes.c_void_p),
        ("set_current", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("get_current", ctypes.c_void_p),
        ("fail", ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int)),
        ("hold", ctypes.CFUNCTYPE(None, ctypes.c_int)),
        ("waiting", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("calls", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("call", ctypes.CFUNCTYPE(Call, ctypes.c_int)),
    ]


@pytest.fixture(scope="module")
def cuda():
    library = ctypes.CDLL(os.environ["HAWSER_STUB_CUDA"])
    library.stub_cuda.restype = ctypes.POINTER(Control)
    control = library.stub_cuda().contents
    control.initialize()
    control.set_current(0x1000)
    yield control
    control.hold(0)


def last_stream(cuda):
    calls = [cuda.call(i) for i in range(cuda.calls())]
    return [c.argument for c in calls if c.name == b"cuStreamSynchronize"][-1]


async def held(cuda, operation, stream):
    """The operation waits for the stream, and goes on with it."""
    task = asyncio.ensure_future(operation)
    while cuda.waiting() == 0:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    assert not task.done()
    cuda.hold(0)
    await asyncio.wait_for(task, 20)
    assert last_stream(cuda) == stream


class Cupy:
    ptr = 0x30


class Torch:
    cuda_stream = 0x40


class Numba:
    handle = ctypes.c_void_p(0x50)


class Core:
    def __cuda_stream__(self):
        return 0, 0x60


@pytest.mark.parametrize(
    "stream, number", [(0x20, 0x20), (Cupy(), 0x30), (Torch(), 0x40), (Numba(), 0x50), (Core(), 0x60)]
)
async def test_sends_wait_for_their_stream(cuda, pair, stream, number):
    client, server = pair
    data, into = b"after the kernel", bytearray(16)

    cuda.hold(1)
    await held(cuda, client.send(data, tag=1, stream=stream), number)
    assert await server.recv(into, tag=1) == 16
    cuda.hold(1)
    await held(cuda, client.stream_send(data, stream=stream), number)
    assert await server.stream_recv(into) == 16
    cuda.hold(1)
    await held(cuda, client.send_am(data, id=3, header=b"h", stream=stream), number)
    header, body = await server.recv_am(3)
    assert (bytes(header), bytes(body)) == (b"h", data)


@pytest.fixture(params=["sysv,tcp,self", "tcp,self"], ids=["shm", "tcp"])
def context(request):
    with hawser.Context(["tag", "stream", "am", "rma"], config={"TLS": request.param}) as context:
        yield context
        gc.collect()


async def test_many_buffers_wait_for_their_stream(cuda, pair):
    client, server = pair
    data, big = b"after the kernel", bytes(range(256)) * 4096

    for buffers in ([data, data], [data, big]):
        cuda.hold(1)
        await held(cuda, taken_along(client.send_multi(buffers, tag=1, stream=Torch()), server, buffers), 0x40)
    cuda.hold(1)
    await held(cuda, client.send_obj({"a": 1}, tag=2, stream=0x20), 0x20)
    assert await server.recv_obj(tag=2) == {"a": 1}


async def taken_along(operation, server, buffers):
    """Large parts leave when they are fetched."""
    segments = await server.recv_multi(1)
    into = [bytearray(n) for n in segments.lengths]
    await segments.fetch(into)
    assert into == buffers
    await operation


async def test_remote_memory_waits_for_the_stream(cuda, pair, context):
    client, server = pair
    memory = context.mem_register(bytearray(1 << 20))
    key = client.rkey_unpack(memory.rkey_pack())
    data = b"after the kernel"

    cuda.hold(1)
    put = asyncio.ensure_future(key.put(data, stream=0x20))
    while cuda.waiting() == 0:
        await asyncio.sleep(0.001)
    assert memory.buffer[:16] == bytes(16)
    await held(cuda, put, 0x20)
    await client.flush()
    assert memory.buffer[:16] == data
    cuda.hold(1)
    await held(cuda, key.put_notify(data, 7, 32, stream=Numba()), 0x50)
    assert await server.recv_notify() == (7, 16) and memory.buffer[32:48] == data
    with client.plan([("put", key, 64, data), ("put", key, 128, bytes([1]) * 4096)]) as plan:
        for i in range(3):
            cuda.hold(1)
            await held(cuda, plan.post(stream=0x70 + i), 0x70 + i)
        assert memory.buffer[64:80] == data and memory.buffer[4223] == 1
    with pytest.raises(TypeError):
        key.get(bytearray(8), stream=0x20)


async def test_none_waits_for_nothing(cuda, pair):
    client, server = pair
    cuda.hold(1)
    try:
        await asyncio.wait_for(client.send(b"x", stream=None), 20)
        assert await server.recv() == b"x"
        assert cuda.waiting() == 0
    finally:
        cuda.hold(0)


async def test_a_stream_that_fails(cuda, pair):
    cuda.fail(b"cuStreamSynchronize", 700)
    try:
        with pytest.raises(hawser.CudaError):
            await pair[0].send(b"x", stream=0x20)
    finally:
        cuda.fail(b"cuStreamSynchronize", 0)


async def test_what_is_no_stream(cuda, pair, context):
    client = pair[0]
    key = client.rkey_unpack(context.mem_register(bytearray(64)).rkey_pack())
    plan = client.plan([("put", key, 0, b"x")])

    for post in (
        lambda stream: client.send(b"x", stream=stream),
        lambda stream: client.send_multi([b"x"], stream=stream),
        lambda stream: key.put(b"x", stream=stream),
        lambda stream: key.put_notify(b"x", 1, stream=stream),
        plan.post,
    ):
        with pytest.raises(TypeError, match="a CUDA stream or its number"):
            post(stream="default")
    with pytest.raises(hawser.InvalidError):
        await pair[0].send(b"x", stream=2)  # the thread's own: another thread cannot wait for it
    await pair[0].send(b"x", stream=0)
    assert last_stream(cuda) is None


def test_numbers():
    assert stream_number(ctypes.c_void_p(None)) == 0
    assert stream_number(7) == 7


def test_the_sync_twin(cuda, context):
    memory = context.mem_register(bytearray(1 << 20))
    told = []

    with hawser.Worker(context) as there, hawser.Worker(context) as here:
        with hawser.sync.listen(host="127.0.0.1", worker=there) as listener:

            def serve():
                with listener.accept(30) as ep:
                    ep.send_obj(memory.rkey_pack(), stream=0x10)
                    told.extend((bytes(ep.recv(tag=2)), ep.recv_multi(3).copy(), ep.recv_notify(30)))
                    ep.recv(tag=9)

            thread = threading.Thread(target=serve)
            thread.start()
            with (
                hawser.sync.connect("127.0.0.1", listener.port, worker=here) as ep,
                ep.rkey_unpack(ep.recv_obj()) as key,
            ):
                assert last_stream(cuda) == 0x10
                with ep.plan([("put", key, 64, b"plan")]) as plan:
                    for stream, call in enumerate(
                        (
                            lambda stream: ep.send(b"sync", tag=2, stream=stream),
                            lambda stream: ep.send_multi([b"m"], 3, stream=stream),
                            lambda stream: key.put(b"put", stream=stream),
                            lambda stream: key.put_notify(b"note", 5, 32, stream=stream),
                            lambda stream: plan.post(stream=stream),
                        ),
                        0x70,
                    ):
                        call(stream)
                        assert last_stream(cuda) == stream
                ep.flush()
                ep.send(b"end", 9)
            thread.join(30)
            assert not thread.is_alive()
    assert told == [b"sync", [b"m"], (5, 4)]
    assert (memory.buffer[:3], memory.buffer[32:36], memory.buffer[64:68]) == (b"put", b"note", b"plan")
    memory.close()
