"""A CUDA stream given to a send: the data leaves once the stream's work is done. SANITIZED

A libcuda of the tests' own stands in for the driver; the payload is the host's."""

import asyncio
import ctypes
import os
import threading

import pytest

# Before the library looks for libcuda; UCX's own CUDA must not meet the stub.
os.environ["HAWSER_CUDA"] = os.environ["HAWSER_STUB_CUDA"]
os.environ["UCX_TLS"] = "posix,cma,self,tcp"

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


async def test_what_is_no_stream(cuda, pair):
    with pytest.raises(TypeError, match="a CUDA stream or its number"):
        pair[0].send(b"x", stream="default")
    with pytest.raises(hawser.InvalidError):
        await pair[0].send(b"x", stream=2)  # the thread's own: another thread cannot wait for it
    await pair[0].send(b"x", stream=0)
    assert last_stream(cuda) is None


def test_numbers():
    assert stream_number(ctypes.c_void_p(None)) == 0
    assert stream_number(7) == 7


def test_the_sync_twin(cuda):
    with hawser.sync.listen(host="127.0.0.1") as listener:
        accepted = []
        thread = threading.Thread(target=lambda: accepted.append(listener.accept()))
        thread.start()
        with hawser.sync.connect("127.0.0.1", listener.port) as client:
            thread.join()
            with accepted[0] as server:
                client.send(b"sync", tag=2, stream=0x70)
                assert server.recv(tag=2) == b"sync"
                assert last_stream(cuda) == 0x70
