"""Worker addresses and remote memory through UCX-Py's API. TIMEOUT: 240"""

import asyncio
import io
import os
import pickle

import numpy as np
import pytest
from ucp._libs import ucx_api
from ucp._libs.arr import Array
from ucp._libs.utils_test import blocking_flush, blocking_recv, blocking_send
from ucp_support import event_loop_policy, fresh_ucp, mp  # noqa: F401

import ucp


def test_address_object():
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    address = worker.get_address()
    copy = pickle.loads(pickle.dumps(address))
    assert isinstance(copy, ucx_api.UCXAddress) and hash(copy) == hash(address)
    assert bytes(copy) == bytes(address) and copy.length == address.length == len(bytes(address)) > 0
    assert memoryview(address).readonly and memoryview(address).ndim == 1
    assert isinstance(address.address, int)
    assert bytes(ucp.get_ucx_address_from_buffer(bytearray(bytes(address)))) == bytes(address)


def address_client(queue, tag):
    async def main():
        address = ucp.get_ucx_address_from_buffer(queue.get())
        ep = await ucp.create_endpoint_from_worker_address(address)
        mine = bytes(ucp.get_worker_address())
        await ep.send(len(mine).to_bytes(8, "little"), tag=0, force_tag=True)
        await ep.send(mine, tag=1, force_tag=True)
        into = bytearray(10)
        await ep.recv(into, tag=tag, force_tag=True)
        assert into == b"0123456789"
        await ep.send(into, tag=tag + 1, force_tag=True)
        await ep.flush()
        await asyncio.sleep(0.2)

    asyncio.run(main())


async def test_connect_by_address():
    queue = mp.Queue()
    process = mp.Process(target=address_client, args=(queue, 7))
    process.start()
    queue.put(bytes(ucp.get_worker_address()))
    length = bytearray(8)
    await ucp.recv(length, tag=0)
    address = bytearray(int.from_bytes(length, "little"))
    await ucp.recv(address, tag=1)
    ep = await ucp.create_endpoint_from_worker_address(ucp.get_ucx_address_from_buffer(address))
    assert ep._tags is None
    with pytest.raises(ValueError):
        await ep.send(b"no tag")
    await ep.send(b"0123456789", tag=7, force_tag=True)
    back = bytearray(10)
    await ucp.recv(back, tag=8)
    assert back == b"0123456789"
    await ep.close()
    await asyncio.to_thread(process.join, 20)
    assert process.exitcode == 0


def leaving(pipe):
    pipe.send(bytes(ucp.get_worker_address()))
    pipe.recv()
    ucp.reset()
    pipe.send("gone")


@pytest.mark.parametrize("am", [False, True])
async def test_send_to_one_that_left(am, monkeypatch):
    """UCX tells of a reset or of a timeout: programs that handle either are served."""
    monkeypatch.setenv("UCX_KEEPALIVE_INTERVAL", "100ms")
    here, there = mp.Pipe()
    process = mp.Process(target=leaving, args=(there,))
    process.start()
    ep = await ucp.create_endpoint_from_worker_address(ucp.get_ucx_address_from_buffer(here.recv()))
    here.send("leave")
    assert here.recv() == "gone"
    for kind, text in (
        (ucp.exceptions.UCXError, "Endpoint timeout"),
        (ucp.exceptions.UCXConnectionReset, "Connection reset by remote peer"),
    ):
        with pytest.raises(kind, match=text):
            await asyncio.wait_for(ep.am_send(b"x") if am else ep.send(b"x", tag=0, force_tag=True), 30)
    ep.abort()
    await asyncio.to_thread(process.join, 20)
    assert process.exitcode == 0


class Loop:
    """A worker connected to itself, and some of its memory."""

    def __init__(self, by_address, size=1000, config=None):
        self.context = ucx_api.UCXContext(config or {})
        self.worker = ucx_api.UCXWorker(self.context)
        self.peers = []
        if by_address:
            self.ep = ucx_api.UCXEndpoint.create_from_worker_address(self.worker, self.worker.get_address(), True)
        else:
            self.listener = ucx_api.UCXListener(self.worker, 0, self.accept)
            self.ep = ucx_api.UCXEndpoint.create(self.worker, "127.0.0.1", self.listener.port, True)
        self.memory = self.context.alloc(size)
        self.rkey = self.ep.unpack_rkey(self.memory.pack_rkey())
        self.remote = ucx_api.RemoteMemory(self.rkey, self.memory.address, self.memory.length)

    def accept(self, request):
        self.peers.append(ucx_api.UCXEndpoint.create_from_conn_request(self.worker, request, True))


@pytest.mark.parametrize("size", [0, 1, 100, 100_000])
def test_memory_handles(size):
    context = ucx_api.UCXContext()
    for handle in (context.alloc(size), context.map(bytearray(size))):
        assert handle.length >= size and handle.address > 0 and isinstance(handle.mem_handle, int)
        packed = handle.pack_rkey()
        assert packed.length == len(bytes(packed)) > 0 and isinstance(packed.key, int)
        assert hash(packed) == hash(pickle.loads(pickle.dumps(packed)))
        handle.close()


@pytest.mark.parametrize("part", [slice(None, None, -1), slice(None, None, 2)])
def test_memory_with_gaps(part):
    """From its address on lies memory that is not its own."""
    context = ucx_api.UCXContext()
    with pytest.raises(ValueError, match="Array must be C or F contiguous"):
        context.map(np.ones(10)[part])
    assert context.map(np.ones((3, 4)).T).length == 96


@pytest.mark.parametrize("by_address", [False, True])
def test_put_and_get(by_address):
    loop = Loop(by_address)
    out, into = os.urandom(100), bytearray(100)
    loop.remote.put_nbi(out, offset=50)
    blocking_flush(loop.ep)
    loop.remote.get_nbi(into, offset=50)
    blocking_flush(loop.worker)
    assert into == out
    ended = []

    def end(request, exception):
        ended.append(exception)

    if loop.remote.put_nb(out[::-1], end) is None:
        end(None, None)
    while not ended:
        loop.worker.progress()
    blocking_flush(loop.ep)
    if loop.remote.get_nb(into, end) is None:
        end(None, None)
    while len(ended) < 2:
        loop.worker.progress()
    assert ended == [None, None] and into == out[::-1]
    with pytest.raises(IndexError):
        loop.remote.put_nbi(bytearray(10), offset=loop.memory.length)


@pytest.mark.parametrize("by_address", [False, True])
@pytest.mark.parametrize("tls", ["sm", "posix,tcp", "sysv,tcp", "tcp", "^self", "all"])
def test_allocated_memory(tls, by_address):
    """A key names UCX's memory domains by number: also of a worker that is dialled by its address."""
    loop = Loop(by_address, config={"TLS": tls})
    into = bytearray(3)
    loop.remote.put_nbi(b"abc")
    blocking_flush(loop.ep)
    loop.remote.get_nbi(into)
    blocking_flush(loop.ep)
    assert into == b"abc"


def moves(loop, size, tag):
    """The calls that say how much of 3 bytes they move."""
    out, into, ep = Array(b"abc"), Array(bytearray(3)), loop.ep
    return [
        lambda: ucx_api.tag_send_nb(ep, out, size, tag, print),
        lambda: ucx_api.tag_recv_nb(loop.worker, into, size, tag, print),
        lambda: ucx_api.stream_send_nb(ep, out, size, print),
        lambda: ucx_api.stream_recv_nb(ep, into, size, print),
        lambda: ucx_api.am_send_nbx(ep, out, size, print),
        lambda: ucx_api.put_nbi(out, size, loop.memory.address, loop.rkey),
        lambda: ucx_api.get_nbi(into, size, loop.memory.address, loop.rkey),
        lambda: ucx_api.put_nb(out, size, loop.memory.address, loop.rkey, print),
        lambda: ucx_api.get_nb(into, size, loop.memory.address, loop.rkey, print),
    ]


def test_sizes_and_tags_that_are_none():
    loop = Loop(True)
    for call in moves(loop, -1, 0):
        with pytest.raises(OverflowError, match="can't convert negative value to size_t"):
            call()
    for call in moves(loop, 4, 0):
        with pytest.raises(ValueError, match="4 bytes are more than the buffer has, 3"):
            call()
    for tag, said in ((-1, "negative value"), (2**64, "too large")):
        for call in moves(loop, 3, tag)[:2]:
            with pytest.raises(OverflowError, match=f"{said}.* to ucp_tag_t"):
                call()
    with pytest.raises(OverflowError):
        loop.remote.put_nbi(b"abc", size=-2)
    with pytest.raises(OverflowError):
        loop.context.alloc(-1)
    blocking_send(loop.worker, loop.ep, b"abc", tag=np.uint64(2**64 - 1))
    got = bytearray(3)
    blocking_recv(loop.worker, loop.ep, got, tag=2**64 - 1)
    assert got == b"abc"


@pytest.mark.parametrize("by_address", [False, True])
def test_io(by_address):
    loop = Loop(by_address)
    with ucx_api.UCXIO(loop.memory.address, 100, loop.rkey) as file:
        assert file.readable() and file.writable() and file.seekable()
        data = os.urandom(100)
        assert file.write(data) == 100
        assert file.write(b"more") == 0
        assert file.seek(-10, io.SEEK_END) == 90
        assert file.write(b"0123456789abcd") == 10
        assert file.seek(-1000) == 0
        assert file.seek(1000) == 100
        with pytest.raises(ValueError):
            file.seek(0, 5)
        file.seek(0)
        assert file.read() == data[:90] + b"0123456789"
    for call in (file.read, file.tell, lambda: file.write(b"x"), lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed"):
            call()


def peer(pipe):
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    where, packed, base, length = pipe.recv()
    if isinstance(where, int):
        ep = ucx_api.UCXEndpoint.create(worker, "127.0.0.1", where, True)
    else:
        ep = ucx_api.UCXEndpoint.create_from_worker_address(worker, where, True)
    rkey = ep.unpack_rkey(packed)
    into = bytearray(length)
    ucx_api.get_nbi(Array(into), length, base, rkey)
    blocking_flush(ep)
    assert into == b"m" * length
    ucx_api.put_nbi(Array(bytearray(b"n" * length)), length, base, rkey)
    blocking_flush(ep)
    blocking_send(worker, ep, b"done", 5)
    blocking_flush(ep)
    pipe.send("end")
    pipe.recv()


@pytest.mark.parametrize("by_address", [False, True])
@pytest.mark.parametrize("size", [10, 1 << 20])
def test_two_processes(size, by_address):
    context = ucx_api.UCXContext()
    worker = ucx_api.UCXWorker(context)
    memory = bytearray(b"m" * size)
    handle = context.map(memory)
    here, there = mp.Pipe()
    process = mp.Process(target=peer, args=(there,))
    process.start()
    peers = []
    listener = ucx_api.UCXListener(
        worker, 0, lambda request: peers.append(ucx_api.UCXEndpoint.create_from_conn_request(worker, request, True))
    )
    where = worker.get_address() if by_address else listener.port
    here.send((where, handle.pack_rkey(), handle.address, size))
    told = bytearray(4)
    blocking_recv(worker, None, told, 5)
    assert told == b"done" and memory == b"n" * size
    while not here.poll():
        worker.progress()
    here.send("end")
    process.join(20)
    assert process.exitcode == 0
