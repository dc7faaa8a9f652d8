"""What can be sent and received into. SANITIZED"""

import array
import ctypes
import mmap

import numpy as np
import pytest

import hawser


@pytest.mark.parametrize(
    "make",
    [
        lambda: bytearray(b"12345678"),
        lambda: memoryview(bytearray(b"12345678")),
        lambda: array.array("d", [1.5]),
        lambda: np.arange(8, dtype=np.uint8),
        lambda: np.asfortranarray(np.arange(4, dtype=np.uint16).reshape(2, 2)),
        lambda: (ctypes.c_char * 8)(*b"12345678"),
        lambda: memoryview(np.arange(16, dtype=np.uint8))[4:12],
    ],
)
async def test_kinds(pair, make):
    client, server = pair
    out, into = make(), make()
    memoryview(into).cast("B") if memoryview(into).c_contiguous else None
    await client.send(out, 1)
    assert await server.recv(into, 1) == 8


async def test_mmap(pair):
    client, server = pair
    with mmap.mmap(-1, 8) as memory:
        await client.send(b"abcdefgh", 1)
        assert await server.recv(memory, 1) == 8
        assert memory[:] == b"abcdefgh"


def test_refused():
    with pytest.raises(BufferError, match="read-only"):
        hawser.memory(b"bytes", True)
    with pytest.raises(BufferError, match="contiguous"):
        hawser.memory(np.arange(10)[::2])
    with pytest.raises(BufferError, match="contiguous"):
        hawser.memory(memoryview(b"0123456789")[::2])
    with pytest.raises(TypeError, match="bytes-like"):
        hawser.memory(5)
    frozen = np.arange(3)
    frozen.flags.writeable = False
    with pytest.raises(BufferError, match="read-only"):
        hawser.memory(frozen, True)


class CudaArray:
    def __init__(self, **changes):
        self.__cuda_array_interface__ = {
            "shape": (2, 3),
            "typestr": "<f4",
            "data": (0x1000, False),
            "version": 3,
            **changes,
        }


def test_cuda_array_interface():
    assert hawser.memory(CudaArray()) == (0x1000, 24, hawser.Memory.CUDA)
    assert hawser.memory(CudaArray(strides=(12, 4)), True)[1] == 24
    assert hawser.memory(CudaArray(strides=(4, 8)))[1] == 24
    assert hawser.memory(CudaArray(shape=(0,)))[1] == 0
    with pytest.raises(BufferError, match="contiguous"):
        hawser.memory(CudaArray(strides=(24, 4)))
    with pytest.raises(BufferError, match="read-only"):
        hawser.memory(CudaArray(data=(0x1000, True)), True)
    with pytest.raises(BufferError, match="mask"):
        hawser.memory(CudaArray(mask=CudaArray()))


class Tensor:
    """Only DLPack, as a tensor library's object without the buffer protocol."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Copies:
    """DLPack by making a copy: each capsule owns new memory."""

    def __dlpack__(self, **options):
        return np.full(4 << 20, 7, np.uint8).__dlpack__(**options)  # so much that the system takes it back at once

    def __dlpack_device__(self):
        return (1, 0)


async def test_memory_of_a_capsule():
    with hawser.Context(["tag", "rma"]) as context:
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            client = await hawser.connect("127.0.0.1", listener.port, worker=worker)
            with context.mem_register(Copies()) as memory:
                assert bytes(memory.buffer[:3]) == b"\7\7\7"
            with context.mem_register(bytearray(4 << 20)) as memory, client.rkey_unpack(memory.rkey_pack()) as key:
                with client.plan([("put", key, 0, Copies())]) as plan:
                    await plan.post()
                    await client.flush()
                assert bytes(memory.buffer[-3:]) == b"\7\7\7"
            await client.close()


async def test_dlpack(pair):
    client, server = pair
    out, into = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    assert hawser.memory(Tensor(out)) == (out.ctypes.data, 24, hawser.Memory.HOST)
    await client.send(Tensor(out), 1)
    assert await server.recv(Tensor(into), 1) == 24
    assert (into == out).all()
    with pytest.raises(BufferError, match="contiguous"):
        hawser.memory(Tensor(np.arange(10)[::2]))


async def test_exporters_are_let_go(pair):
    client, server = pair
    data = bytearray(8)
    view = memoryview(data)
    await client.send(view, 1)
    await server.recv(view, 1)
    view.release()
    data.append(1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.array([None]),
        lambda: memoryview(np.array([None])),
        lambda: np.zeros((2, 2), object, order="F"),
        lambda: np.zeros(2, [("n", "i4"), ("o", "O")]),
    ],
)
async def test_objects_are_no_bytes(pair, make):
    """What a peer writes over a pointer to an object ends the process once somebody looks at it."""
    client, server = pair
    with pytest.raises(TypeError, match="Python objects"):
        await client.send(make(), 1)
    with pytest.raises(TypeError, match="Python objects"):
        await server.recv(make(), 1)


async def test_fields_may_have_any_name(pair):
    client, server = pair
    out, into = np.full(2, 7, [("O", "i8")]), np.zeros(2, [("O", "i8")])
    await client.send(out, 1)
    assert await server.recv(into, 1) == 16 and (into == out).all()


async def test_a_released_view(pair):
    view = memoryview(bytearray(8))
    view.release()
    with pytest.raises(ValueError, match="released"):
        await pair[0].send(view, 1)
