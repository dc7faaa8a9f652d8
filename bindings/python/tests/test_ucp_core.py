"""The synchronous core of UCX-Py: ucp._libs.ucx_api and arr. TIMEOUT: 240"""

import array
import functools
import gc
import io
import mmap
import multiprocessing
import operator
import os
import pickle
import signal
import socket
import time
import warnings

import numpy as np
import pytest
from ucp._libs import _endpoint, _request, arr, ucx_api
from ucp._libs.arr import Array
from ucp._libs.utils_test import (
    blocking_am_recv,
    blocking_am_send,
    blocking_flush,
    blocking_recv,
    blocking_send,
    get_endpoint_error_handling_default,
    non_blocking_recv,
    non_blocking_send,
)
from ucp.exceptions import UCXCanceled, UCXConfigError, UCXConnectionReset
from ucp_support import event_loop_policy  # noqa: F401

import ucp

mp = multiprocessing.get_context("spawn")

BUFFERS = [
    b"",
    b"abcd",
    array.array("i", []),
    array.array("i", [0, 1, 2, 3]),
    array.array("I", [0, 1, 2, 3]),
    array.array("f", []),
    array.array("f", [0, 1, 2, 3]),
    array.array("d", [0, 1, 2, 3]),
    memoryview(array.array("B", [0, 1, 2, 3, 4, 5])).cast("B", (3, 2)),
    memoryview(b"abcd"),
    memoryview(bytearray(b"abcd")),
    io.BytesIO(b"abcd").getbuffer(),
    mmap.mmap(-1, 5),
]


@pytest.mark.parametrize("buffer", BUFFERS)
def test_array_of_builtin(buffer):
    view = memoryview(buffer)
    made = Array(buffer)
    assert made.obj is view.obj
    assert made.ptr != 0
    for name in ("itemsize", "ndim", "nbytes", "shape", "strides", "readonly", "c_contiguous", "f_contiguous"):
        assert getattr(made, name) == getattr(view, name), name
    assert made.contiguous == view.contiguous
    assert not made.cuda
    assert arr.asarray(made) is made
    with pytest.raises(TypeError):
        pickle.dumps(made)


SHAPES = [(), (10,), (4, 6), (4, 6, 8), (0,), (3, 0)]
INDEXES = [slice(None), slice(None, None, 2), slice(None, None, -1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("dtype", ["i1", "f8", "u2"])
def test_array_of_numpy(shape, order, index, dtype):
    a = np.ndarray(shape, dtype, order=order)
    if shape:
        a = a[index]
    made = Array(a)
    assert made.ptr == a.__array_interface__["data"][0]
    assert (made.shape, made.ndim, made.itemsize) == (a.shape, a.ndim, a.itemsize)
    assert made.strides == (a.strides if a.size else memoryview(a).strides)
    assert made.nbytes == a.nbytes
    assert made.c_contiguous == a.flags.c_contiguous
    assert made.f_contiguous == a.flags.f_contiguous
    assert made.contiguous == a.flags.forc


def test_array_of_cuda():
    class Cuda:
        __cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (0x1000, False), "version": 2}

    made = Array(Cuda())
    assert made.cuda and made.ptr == 0x1000 and made.nbytes == 24 and made.strides == (12, 4)
    whole, part = _request.view_of(made, 24, True), Array(_request.view_of(made, 10, True))
    assert whole is made.source
    assert part.cuda and part.ptr == 0x1000 and part.nbytes == 10 and part.itemsize == 1 and part.contiguous
    Cuda.__cuda_array_interface__["typestr"] = ""
    with pytest.raises(ValueError):
        Array(Cuda())
    Cuda.__cuda_array_interface__.update(typestr="<f4", mask=made)
    with pytest.raises(NotImplementedError):
        Array(Cuda())


def test_config():
    ctx = ucx_api.UCXContext({"SEG_SIZE": "2M"})
    assert ctx.get_config()["SEG_SIZE"] == "2M"
    assert ctx.initialized and isinstance(ctx.handle, int) and ctx.info()
    ctx.close()
    ctx.close()
    assert not ctx.initialized
    with pytest.raises(UCXConfigError):
        ucx_api.UCXContext({"SEG_SIZE": "invalid-size"})
    assert ucx_api.get_current_options()["TLS"] == os.environ.get("UCX_TLS", "all")


@pytest.mark.parametrize("feature", [ucx_api.Feature.TAG, ucx_api.Feature.STREAM, ucx_api.Feature.AM])
def test_features(feature):
    other = ucx_api.Feature.STREAM if feature is not ucx_api.Feature.STREAM else ucx_api.Feature.AM
    ctx = ucx_api.UCXContext({}, (other,))
    worker = ucx_api.UCXWorker(ctx)
    listener = ucx_api.UCXListener(worker, 0, lambda request: None)
    ep = ucx_api.UCXEndpoint.create(worker, "127.0.0.1", listener.port, True)
    msg = Array(bytearray(10))

    def nothing(*args):
        pass

    calls = {
        ucx_api.Feature.TAG: lambda: ucx_api.tag_send_nb(ep, msg, 10, 0, nothing),
        ucx_api.Feature.STREAM: lambda: ucx_api.stream_send_nb(ep, msg, 10, nothing),
        ucx_api.Feature.AM: lambda: ucx_api.am_send_nbx(ep, msg, 10, nothing),
    }
    with pytest.raises(ValueError, match=f"UCXContext must be created with `Feature.{feature.name}`"):
        calls[feature]()
    ep.close()
    listener.close()


def test_questions_of_older_programs():
    """Both were asked when UCX-Py ran on releases of UCX without active messages or error handling."""
    assert ucx_api.is_am_supported() is True and ucp.core.is_am_supported() is True
    assert get_endpoint_error_handling_default() is True


def test_listener():
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    listener = ucx_api.UCXListener(worker=worker, port=0, cb_func=lambda request: None)
    assert isinstance(listener.ip, str) and isinstance(listener.port, int) and listener.port > 0
    listener.close()


def test_forgotten_worker():
    workers = [ucx_api.UCXWorker(ucx_api.UCXContext()) for _ in range(2)]
    peers = []
    listener = ucx_api.UCXListener(
        workers[0],
        0,
        lambda request: peers.append(ucx_api.UCXEndpoint.create_from_conn_request(workers[0], request, True)),
    )
    ep = ucx_api.UCXEndpoint.create(workers[1], "127.0.0.1", listener.port, True)
    while not peers:
        workers[0].progress()
    start = time.monotonic()
    del ep, workers[1]  # its peer makes no progress
    assert time.monotonic() - start < 2
    while peers[0].is_alive():
        workers[0].progress()


def receive(post, worker, ep, end):
    into = Array(bytearray(10))
    if post is ucx_api.tag_recv_nb:
        post(worker, into, 10, 7, end, ep=ep)
    elif post is ucx_api.stream_recv_nb:
        post(ep, into, 10, end)
    else:
        post(ep, end)


@pytest.mark.parametrize("post", [ucx_api.tag_recv_nb, ucx_api.stream_recv_nb, ucx_api.am_recv_nb])
def test_forgotten_endpoint(post):
    """What waits on it ends, and its peer sees that it is closed."""
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    peers, ended = [], []
    listener = ucx_api.UCXListener(
        worker, 0, lambda request: peers.append(ucx_api.UCXEndpoint.create_from_conn_request(worker, request, True))
    )
    ep = ucx_api.UCXEndpoint.create(worker, "127.0.0.1", listener.port, True)
    while not peers:
        worker.progress()
    receive(post, worker, ep, lambda _request, exception: ended.append(type(exception)))
    del ep
    gc.collect()
    until = time.monotonic() + 20
    while (peers[0].is_alive() or not ended) and time.monotonic() < until:
        worker.progress()
        worker.cancel_inflight_messages()
    assert not peers[0].is_alive()
    assert ended == [UCXCanceled]


def test_an_interrupted_connect_is_given_up():
    """Ctrl-C as a peer does not answer."""
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            with pytest.raises(KeyboardInterrupt):
                ucx_api.UCXEndpoint.create(worker, "127.0.0.1", silent.getsockname()[1], True)
            gc.collect()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert [str(warning.message) for warning in said] == []
    worker.close()


def test_questions_after_the_worker_is_closed():
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    ep = ucx_api.UCXEndpoint.create_from_worker_address(worker, worker.get_address(), True)
    worker.close()
    assert not ep.am_probe() and not ep.is_alive() and not ep.initialized


@pytest.mark.parametrize("transports", ["all", "tcp"])
def test_progress_sees_what_waits(transports):
    """However long nothing came before, and without a loop that looks."""
    worker, peers = ucx_api.UCXWorker(ucx_api.UCXContext({"TLS": transports})), []
    listener = ucx_api.UCXListener(
        worker, 0, lambda request: peers.append(ucx_api.UCXEndpoint.create_from_conn_request(worker, request, True))
    )
    ep = ucx_api.UCXEndpoint.create(worker, "127.0.0.1", listener.port, True)
    while not peers:
        worker.progress()
    for idle in (0.1, 0.2, 0.3, 0.4, 0.5):
        end = time.monotonic() + idle
        while time.monotonic() < end:
            worker.progress()
        blocking_send(worker, peers[0], bytearray(b"hello"), 6)
        time.sleep(0.05)
        for _ in range(2):
            worker.progress()
        assert worker._worker.probe(6) is not None
        blocking_recv(worker, ep, bytearray(5), 6)
    for end in (ep, peers[0], listener):
        end.close()


def serve(pipe, work, error_handling):
    ctx = ucx_api.UCXContext()
    worker = ucx_api.UCXWorker(ctx)
    ep = [None]

    def accept(request):
        ep[0] = ucx_api.UCXEndpoint.create_from_conn_request(worker, request, error_handling)

    listener = ucx_api.UCXListener(worker, 0, accept)
    pipe.send(listener.port)
    while ep[0] is None:
        worker.progress()
    work(worker, ep[0])
    blocking_flush(ep[0])
    ep[0].close()
    pipe.close()


class Served:
    """A server process that runs work(worker, ep), and an endpoint connected to it."""

    def __init__(self, work, error_handling=True):
        self.pipe, there = mp.Pipe()
        self.process = mp.Process(target=serve, args=(there, work, error_handling), daemon=True)
        self.process.start()
        self.worker = ucx_api.UCXWorker(ucx_api.UCXContext())
        self.ep = ucx_api.UCXEndpoint.create(self.worker, "127.0.0.1", self.pipe.recv(), error_handling)

    def __enter__(self):
        return self.worker, self.ep

    def __exit__(self, *exc):
        self.ep.close()
        self.process.join(20)
        assert self.process.exitcode == 0


def echo_tag(worker, ep, size):
    msg = bytearray(size)
    blocking_recv(worker, ep, msg, 1)
    blocking_send(worker, ep, msg, 2)


@pytest.mark.parametrize("size", [10, 16 << 20])
def test_tag_echo(size):
    with Served(functools.partial(echo_tag, size=size)) as (worker, ep):
        msg, got = bytearray(os.urandom(size)), bytearray(size)
        blocking_send(worker, ep, msg, 1)
        blocking_recv(worker, ep, got, 2)
        assert got == msg


@pytest.mark.parametrize("nbytes", [8, 96])
def test_arrays_of_columns(nbytes):
    """The bytes of an array go as they lie, also only the first of them."""
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    ep = ucx_api.UCXEndpoint.create_from_worker_address(worker, worker.get_address(), True)
    sent, got = np.asfortranarray(np.arange(1.0, 13).reshape(3, 4)), np.zeros((3, 4), order="F")
    ended = []
    ucx_api.tag_recv_nb(worker, Array(got), nbytes, 7, lambda _request, exception: ended.append(exception))
    ucx_api.tag_send_nb(ep, Array(sent), nbytes, 7, lambda _request, exception: None)
    while not ended:
        worker.progress()
    assert ended == [None]
    assert got.tobytes("A") == sent.tobytes("A")[:nbytes] + bytes(96 - nbytes)
    ep.close()


def echo_am(worker, ep, size):
    blocking_am_send(worker, ep, blocking_am_recv(worker, ep))
    assert size >= 0


@pytest.mark.parametrize("size", [0, 10, 10_000, 16 << 20])
def test_am_echo(size):
    with Served(functools.partial(echo_am, size=size)) as (worker, ep):
        worker.register_am_allocator(lambda n: np.empty(n, "u1"), ucx_api.AllocatorType.HOST)
        msg = bytearray(os.urandom(size))
        blocking_am_send(worker, ep, msg)
        got = blocking_am_recv(worker, ep)
        assert isinstance(got, np.ndarray) and bytes(got) == msg


def say_and_leave(worker, ep, am):
    if am:
        blocking_am_send(worker, ep, bytearray(b"0" * 10))
    else:
        blocking_send(worker, ep, bytearray(b"0" * 10), 5)


@pytest.mark.parametrize("am", [True, False])
def test_message_after_the_peer_left(am):
    with Served(functools.partial(say_and_leave, am=am)) as (worker, ep):
        while ep.is_alive():
            worker.progress()
        with pytest.raises(UCXConnectionReset):
            ep.raise_on_error()
        if am:
            assert ep.am_probe() is True
            assert blocking_am_recv(worker, ep) == b"0" * 10
            assert ep.am_probe() is False
        else:
            assert worker.tag_probe(5) is True
            got = bytearray(10)
            blocking_recv(worker, ep, got, 5)
            assert got == b"0" * 10
            assert worker.tag_probe(5) is False


def say_am(worker, ep):
    blocking_am_send(worker, ep, bytearray(b"early"))
    while ep.is_alive():
        worker.progress()


def test_an_active_message_that_comes_before_its_endpoint_is_made(monkeypatch):
    """Another thread may make progress between the end of connecting and then."""
    connect = _endpoint._connect

    def connect_and_wait(*args, worker, **options):
        connecting = connect(*args, worker=worker, **options)
        end = time.monotonic() + 30
        while not connecting.operation.done() and time.monotonic() < end:
            worker.progress()
        assert connecting.operation.done()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            worker.progress()
        return connecting

    monkeypatch.setattr(_endpoint, "_connect", connect_and_wait)
    with Served(say_am) as (worker, ep):
        got = []
        ucx_api.am_recv_nb(ep, lambda data, exception: got.append((bytes(data), exception)))
        end = time.monotonic() + 10
        while not got and time.monotonic() < end:
            worker.progress()
        assert got == [(b"early", None)]


def leave(worker, ep):
    pass


@pytest.mark.parametrize("am", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_cancel_what_a_peer_left_behind(am, left):
    """left: it was gone already when the receive was posted."""
    with Served(leave) as (worker, ep):
        ended = []
        while left and ep.is_alive():
            worker.progress()
        if am:
            ucx_api.am_recv_nb(ep, lambda got, exception: ended.append(exception))
        else:
            into = Array(bytearray(10))
            request = ucx_api.tag_recv_nb(
                worker, into, 10, 7, lambda request, exception: ended.append(exception), ep=ep
            )
            assert not request.closed() and request.info["status"] == "pending"
        while ep.is_alive():
            worker.progress()
        assert worker.cancel_inflight_messages() == 1
        assert isinstance(ended[0], UCXCanceled)
        if not am:
            assert "tag_recv_nb" in str(ended[0])
            assert request.info["status"] == "finished"


@pytest.mark.parametrize("server_closes", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_close_callback(server_closes, left):
    """left: the peer was gone already when the callback was set."""
    with Served(leave) as (worker, ep):
        closed = []
        while left and ep.is_alive():
            worker.progress()
        ep.set_close_callback(lambda: closed.append(1))
        if server_closes:
            while not closed:
                worker.progress()
        ep.close()
        assert closed == [1]


def count_many(worker, ep):
    got = [bytearray(10) for _ in range(100)]
    done = []
    for msg in got:
        non_blocking_recv(worker, ep, msg, lambda: None, functools.partial(operator.iadd, done, [1]), 3)
    while len(done) < 100:
        worker.progress()
    assert all(msg == b"0" * 10 for msg in got)


def test_many_requests():
    with Served(count_many) as (worker, ep):
        started, done = [], []
        for _ in range(100):
            non_blocking_send(worker, ep, bytearray(b"0" * 10), lambda: started.append(1), lambda: done.append(1), 3)
        while len(done) < 100:
            worker.progress()
        assert len(started) == 100


def test_request_object():
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    ended = []
    request = ucx_api.tag_recv_nb(
        worker, Array(bytearray(1)), 1, 9, lambda r, e, *a, **k: ended.append((e, a, k)), -1, (1,), {"x": 2}
    )
    assert request == request and hash(request) and "uid=" in repr(request) and isinstance(request.handle, int)
    worker.request_cancel(request)
    while not ended:
        worker.progress()
    exception, args, kwargs = ended[0]
    assert isinstance(exception, UCXCanceled) and (args, kwargs) == ((1,), {"x": 2})
    request.close()
    assert request.closed() and repr(request) == "<UCXRequest closed>"


def test_blocking_mode_descriptor():
    import select

    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    fd = worker.init_blocking_progress_mode()
    while not worker.arm():
        worker.progress()
    assert select.select([fd], [], [], 0.01)[0] == []
    os.close(fd)


def test_a_peer_that_comes_when_the_listeners_loop_is_closed():
    """Nobody serves it: who met it is told, and closes it."""
    import asyncio

    from hawser.ucp.core import serve_in

    served = []
    loop = asyncio.new_event_loop()
    assert serve_in(loop, served.append)
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    assert served == [loop]
    assert not serve_in(loop, served.append)
    assert served == [loop]


def loopback():
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    ep = ucx_api.UCXEndpoint.create_from_worker_address(worker, worker.get_address(), False)
    return worker, ep


def test_a_worker_that_is_closed_by_a_callback():
    """progress() that called it returns."""
    worker, ep = loopback()
    ended = []

    def close(_request, exception):
        ended.append(exception)
        worker.close()

    ucx_api.tag_recv_nb(worker, Array(bytearray(3)), 3, 1, close)
    ucx_api.tag_send_nb(ep, Array(b"abc"), 3, 1, lambda *args: None)
    while not ended:
        worker.progress()
    assert ended == [None] and not worker.initialized


@pytest.mark.parametrize(
    "call",
    [
        lambda worker, ep, end: worker.get_address(),
        lambda worker, ep, end: worker.flush(end),
        lambda worker, ep, end: ucx_api.tag_recv_nb(worker, Array(bytearray(3)), 3, 1, end),
        lambda worker, ep, end: ucx_api.am_recv_nb(ep, end),
        lambda worker, ep, end: ucx_api.UCXListener(worker, 0, end),
        lambda worker, ep, end: ucx_api.UCXEndpoint.create(worker, "127.0.0.1", 1, True),
        lambda worker, ep, end: ucx_api.UCXEndpoint.create_from_worker_address(worker, b"", True),
    ],
)
def test_calls_on_a_closed_worker(call):
    worker, ep = loopback()
    worker.close()
    with pytest.raises(AssertionError, match="is closed"):
        call(worker, ep, lambda *args: None)


def test_a_worker_of_a_closed_context():
    context = ucx_api.UCXContext()
    context.close()
    with pytest.raises(AssertionError, match="is closed"):
        ucx_api.UCXWorker(context)
