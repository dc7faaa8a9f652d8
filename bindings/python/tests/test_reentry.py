"""Python that runs in the midst of the extension: finalisers, comparisons, deleters, the collector; and threads that
come between two steps. TIMEOUT: 120 SANITIZED"""

import asyncio
import ctypes
import gc
import os
import time

import numpy as np
import pytest
from conftest import run_script

import hawser
import hawser._memory
import hawser._worker


class Late:
    """Calls something when it goes."""

    def __init__(self, fn):
        self.fn = fn

    def __del__(self):
        self.fn()


def pair_by_hand(listening, dialling):
    """Two endpoints, for tests without a loop."""
    listener = hawser.listen(host="127.0.0.1", worker=listening)
    accepting = listener.accept()
    connecting = hawser.connect("127.0.0.1", listener.port, worker=dialling)
    while not (accepting.done() and connecting.operation.done()):
        listening.progress()
        dialling.progress()
    return connecting.wait(), accepting.result()


def descriptors():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_worker_that_is_being_freed_is_told_nothing(context):
    """Its dictionary goes first, which runs Python, while an operation still holds the C side."""
    got, looked = [], []
    worker = hawser.Worker(context, am_ids=())
    with hawser.Worker(context) as other:
        client = pair_by_hand(worker, other)[0]
        operations = [worker.recv(bytearray(8), 77)]

        def look():
            for _ in range(20):
                other.progress()
                with pytest.raises(TimeoutError):
                    operations[0].wait(0.005)
            looked.append(len(got))

        held = Late(look)
        worker.am_handler(3, lambda endpoint, header, data, held=held: got.append(data))
        client.send_am(b"hello", 3)
        del held, worker
        gc.collect()
        assert looked == [0]
        operations.clear()
        client.abort()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("look", [True, False])
def test_a_list_outlived_by_its_operation(context, look):
    worker = hawser.Worker(context)
    client, server = pair_by_hand(worker, worker)
    receiving, sending = server.recv_multi(3), client.send_multi([b"x" * 100] * 2000, 3)
    while not receiving.done():
        worker.progress()
    sending.cancel()
    worker.close_wait()
    if look:
        with pytest.raises(ValueError, match="closed"):
            receiving.result()


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype = ctypes.py_object
new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, DELETER]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", hawser._memory._Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Tensor:
    """Memory by DLPack, of a shape that need not be true, with a function for the end of its capsule."""

    def __init__(self, shape, gone=lambda: None, data=None):
        self.data = np.zeros(64, "u1") if data is None else data
        self.shape = (ctypes.c_int64 * len(shape))(*shape)
        self.gone = DELETER(lambda _: gone())
        tensor = self.managed = Managed()
        tensor.tensor.data, tensor.tensor.device_type, tensor.tensor.ndim = self.data.ctypes.data, 1, len(shape)
        tensor.tensor.code, tensor.tensor.bits, tensor.tensor.lanes = 1, 8, 1
        tensor.tensor.shape = ctypes.cast(self.shape, ctypes.POINTER(ctypes.c_int64))

    def __dlpack__(self, **options):
        return new_capsule(ctypes.addressof(self.managed), b"dltensor", self.gone)

    def __dlpack_device__(self):
        return (1, 0)


async def test_a_header_whose_owner_runs_python(pair):
    """What is sent is held by then."""
    client, server = pair
    data, refused = bytearray(b"A" * (1 << 20)), []

    def gone():
        try:
            data.clear()
        except BufferError as error:
            refused.append(error)

    sending = client.send_am(data, 0, Tensor([16], gone), rndv=True)
    _, got = await server.recv_am(0)
    await sending
    assert len(refused) == 1 and bytes(memoryview(got)) == b"A" * (1 << 20)


async def test_memory_of_a_fetch_stays_until_its_end(pair):
    client, server = pair
    gone = []
    into = Tensor([1 << 20], lambda: gone.append(1), np.zeros(1 << 20, "u1"))
    got = []
    server.worker.am_handler(4, lambda endpoint, header, data: got.append(data), defer=True)
    sending = client.send_am(b"q" * (1 << 20), 4, rndv=True)
    while not got:
        await asyncio.sleep(0.001)
    fetching = got[0].fetch(into)
    assert not gone
    assert await fetching is into and await sending is None
    assert gone and bytes(into.data[-2:]) == b"qq"
    server.worker.am_handler(4, None)


@pytest.mark.parametrize("shape", [[-1], [-4, -4], [1 << 62, 8], [1 << 62, 4, 2]])
async def test_shapes_that_lie(pair, shape):
    client, server = pair
    with pytest.raises(BufferError):
        client.send(Tensor(shape), 1)
    with pytest.raises(BufferError):
        server.recv(Tensor(shape), 1)


def test_cuda_arrays_that_lie():
    class Array:
        def __init__(self, **other):
            self.__cuda_array_interface__ = {"shape": (8,), "typestr": "|u1", "data": (4096, False), **other}

    for other in ({"shape": (-8,)}, {"shape": ((1 << 64) + 3,)}, {"data": (-4096, False)}, {"typestr": "|u-1"}):
        with pytest.raises(BufferError):
            hawser.memory(Array(**other))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_workers_that_were_dropped(context):
    """They are looked after when the next one is opened, by Python that may open another; nothing of them stays."""
    opened, armed = [], True

    class Opens(np.ndarray):
        def __del__(self):
            if armed:
                opened.append(hawser.Worker(context))

    before = descriptors()
    for _ in range(3):
        worker, data = hawser.Worker(context), np.zeros(8, "u1").view(Opens)
        receiving = worker.recv(data, 1)
        del receiving, data, worker
        gc.collect()
    deadline = time.monotonic() + 20
    while len(opened) < 3 and time.monotonic() < deadline:
        opened.append(hawser.Worker(context))
        opened.pop().close_wait()
        time.sleep(0.05)
    armed = False
    assert len(opened) == 3
    while opened:
        opened.pop().close_wait()
    while descriptors() > before and time.monotonic() < deadline:
        hawser.Worker(context).close_wait()
        time.sleep(0.05)
    assert descriptors() <= before


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_the_last_reference_goes_while_an_exception_is_set(context):
    holder = [hawser.Worker(context, am_ids=())]
    await holder[0].flush()
    holder[0]._watch()
    with pytest.raises(TypeError, match="int"):
        int(holder.pop())


async def test_a_comparison_that_ends_the_operation(worker):
    operation = worker.recv(bytearray(8), 1)

    class Ends:
        def __call__(self, operation):
            pass

        def __eq__(self, other):
            operation.cancel()
            return False

        __hash__ = None

    for _ in range(4):
        operation.add_done_callback(Ends())
    assert operation.remove_done_callback(lambda operation: None) == 0
    assert operation.cancelled()


@pytest.mark.parametrize("look", [lambda segments: segments.copy(), lambda segments: segments.kinds])
async def test_a_collector_that_drops_the_message(pair, look):
    client, server = pair
    receiving = server.recv_multi(3)
    await client.send_multi([b"x" * 100] * 50, 3)
    segments = await receiving

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            segments.drop()

    thresholds = gc.get_threshold()
    gc.disable()
    Cycle()
    gc.set_threshold(1, 1, 1)
    gc.enable()
    try:
        with pytest.raises(ValueError, match="dropped"):
            look(segments)
    finally:
        gc.set_threshold(*thresholds)


CHILD = """
import asyncio, os, threading, warnings
import hawser
warnings.simplefilter("ignore")

async def main():
    context = hawser.Context()
    worker, far = hawser.Worker(context, spin=0), hawser.Worker(context, progress="thread")
    listener = hawser.listen(host="127.0.0.1", worker=worker)
    client = hawser.connect("127.0.0.1", listener.port, worker=far)
    server = await listener.accept()
    client = await client
    child = os.fork()
    if child == 0:
        worker._closed()  # as when the last reference goes
        os._exit(0)
    os.waitpid(child, 0)
    receiving = server.recv(bytearray(4), 1)
    threading.Timer(0.3, client.send, (b"abcd", 1)).start()
    print(await asyncio.wait_for(receiving, 5), flush=True)
    os._exit(0)

asyncio.run(main())
"""


def test_a_child_that_lets_go_of_the_worker():
    """The set of descriptors that the loop waits on is the parent's, too."""
    assert run_script(CHILD) == (0, "4\n")


async def test_a_message_for_who_just_gave_up(pair, monkeypatch):
    """It is the next one's: another thread may cancel between the look and the end."""
    client, server = pair
    give = hawser._waiters.Messages._give
    given = []

    def late(self, operation, thing):
        if not given:
            operation.cancel()
        given.append(operation)
        return give(self, operation, thing)

    monkeypatch.setattr(hawser._waiters.Messages, "_give", late)
    receiving = server.recv_am(0)
    await client.send_am(b"", 0, b"precious")
    while not given:
        await asyncio.sleep(0)
    assert receiving.cancelled()
    assert (await asyncio.wait_for(server.recv_am(0), 5))[0] == b"precious"


class EndingLoop(asyncio.SelectorEventLoop):
    """Once it is asked for a turn something ends, as another thread may end it then."""

    end = None

    def call_soon(self, *args, **kwargs):
        handle = super().call_soon(*args, **kwargs)
        end, self.end = self.end, None
        if end is not None:
            end()
        return handle


@pytest.fixture
def watched(context):
    """A loop that looks after a worker and is not about to."""
    with hawser.Worker(context) as worker:
        loop = EndingLoop()
        loop.run_until_complete(_watch(worker))
        yield worker, loop
        loop.close()


async def _watch(worker):
    worker._watch()
    await asyncio.sleep(0.02)


def test_a_worker_that_ends_as_its_loop_is_asked_for_a_turn(watched):
    worker, loop = watched

    async def wait():
        receiving = worker.recv(bytearray(8), 1, timeout=60)
        loop.end = worker._closed
        receiving.add_done_callback(lambda operation: None)
        receiving.cancel()
        assert receiving.cancelled()

    loop.run_until_complete(wait())


@pytest.mark.parametrize("look", ["cancel", "get_loop"])
def test_a_collector_that_ends_the_worker_while_its_loop_is_asked(watched, look):
    worker, loop = watched

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            worker._closed()

    async def wait():
        receiving = worker.recv(bytearray(8), 1)
        receiving.add_done_callback(lambda operation: None)
        await asyncio.sleep(0.02)
        thresholds = gc.get_threshold()
        gc.disable()
        _kept = [(i,) for i in range(4000)]  # the next tuple of one is made anew, and counts
        Cycle()
        gc.set_threshold(1, 1, 1)
        gc.enable()
        try:
            if look == "cancel":
                receiving.cancel()
            else:
                receiving.get_loop()
        finally:
            gc.set_threshold(*thresholds)
        receiving.cancel()

    loop.run_until_complete(wait())


async def test_a_tag_that_changes_the_size_of_what_is_sent(pair):
    client, server = pair
    data = bytearray(b"A" * (1 << 16))

    class Tag:
        def __index__(self):
            data.clear()
            return 1

    sending = client.send(data, Tag())
    assert await server.recv(tag=1) == b""
    await sending
