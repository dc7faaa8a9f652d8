"""UCXX programs: its synchronous core. TIMEOUT: 300"""

import asyncio
import contextlib
import copy
import gc
import logging
import multiprocessing
import os
import pickle
import resource
import time

import pytest
from ucp_support import event_loop_policy, mp  # noqa: F401

from hawser import ucxx
from hawser.ucxx._lib import libucxx
from hawser.ucxx._lib.arr import Array
from hawser.ucxx._lib.libucxx import Feature, UCXXTag, UCXXTagMask, UCXXTagMaskFull
from hawser.ucxx.testing import join_processes, run_in_subprocess, terminate_process, wait_requests

APIS = {"am": Feature.AM, "stream": Feature.STREAM, "tag": Feature.TAG}


def test_address_object():
    worker = libucxx.UCXWorker(libucxx.UCXContext())
    address = worker.address
    for again in (
        pickle.loads(pickle.dumps(address)),
        libucxx.UCXAddress.create_from_buffer(buf=bytearray(bytes(address))),
        libucxx.UCXAddress.create_from_string(bytes(address)),
    ):
        assert hash(again) == hash(address) and bytes(again) == address.tobytes()
    with pytest.raises(TypeError):
        libucxx.UCXAddress()
    assert address.length == len(bytes(address)) > 0 and isinstance(address.ucxx_ptr, int)


@pytest.mark.parametrize("kind", [UCXXTag, UCXXTagMask])
def test_tags(kind):
    assert kind(42) == kind(42) == 42 and kind(42) != kind(100) and kind(42) != 100 and kind(42) != "42"
    assert hash(kind(1)) == hash(kind(1)) and len({kind(1), kind(2), kind(1)}) == 2
    assert repr(kind(42)) == f"{kind.__name__}(42)" and kind(2**63) == 2**63 and kind(42) != -1
    assert UCXXTag(1) != UCXXTagMask(1) and kind(1.5) == 1 and kind(2**64 - 1).value == 2**64 - 1
    for number in (-1, 2**64):
        with pytest.raises(OverflowError):
            kind(number)
    for thing in ("5", b"5", None, [5]):
        with pytest.raises(TypeError):
            kind(thing)
    with pytest.raises(AttributeError):
        kind(1).value = 2
    assert pickle.loads(pickle.dumps(kind(5))) == kind(5)
    assert UCXXTagMaskFull.value == 2**64 - 1 and repr(UCXXTagMaskFull) == f"UCXXTagMask({2**64 - 1})"


def test_config(monkeypatch):
    monkeypatch.setenv("UCX_SEG_SIZE", "2M")
    assert libucxx.UCXContext().config["SEG_SIZE"] == "2M"
    assert libucxx.UCXContext({"SEG_SIZE": "3M"}).config["SEG_SIZE"] == "3M"
    assert libucxx.UCXConfig({"SEG_SIZE": "3M"}).config["SEG_SIZE"] == "3M"
    assert libucxx.get_current_options()["SEG_SIZE"] == "2M"
    with pytest.raises(libucxx.UCXInvalidParamError):
        libucxx.UCXContext({"SEG_SIZE": "invalid-size"})


@pytest.mark.parametrize("feature", APIS.values())
def test_features(feature):
    context = libucxx.UCXContext(feature_flags=(feature, Feature.WAKEUP))
    assert context.feature_flags == feature.value + Feature.WAKEUP.value and context.handle and context.info
    worker = libucxx.UCXWorker(context)
    ep = libucxx.UCXEndpoint.create_from_worker_address(worker, worker.address, endpoint_error_handling=False)
    array = Array(bytearray(10))
    calls = {
        Feature.TAG: [lambda: ep.tag_send(array, UCXXTag(0)), lambda: ep.tag_recv(array, UCXXTag(0))],
        Feature.STREAM: [lambda: ep.stream_send(array), lambda: ep.stream_recv(array)],
        Feature.AM: [lambda: ep.am_send(array), ep.am_recv],
    }
    for other, missing in calls.items():
        for call in missing if other is not feature else []:
            with pytest.raises(ValueError, match=f"UCXContext must be created with `Feature.{other.name}`"):
                call()


def end_of(api, progress_mode):
    worker = libucxx.UCXWorker(libucxx.UCXContext(feature_flags=(APIS[api], Feature.WAKEUP)))
    if progress_mode == "blocking":
        worker.init_blocking_progress_mode()
    else:
        worker.start_progress_thread()
    return worker


def test_the_progress_thread_outlives_its_start_callback(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("ucx"), "propagate", True)

    def fail(_):
        raise RuntimeError("no GPU")

    worker = libucxx.UCXWorker(libucxx.UCXContext(feature_flags=(Feature.TAG, Feature.WAKEUP)))
    worker.set_progress_thread_start_callback(fail, cb_args=(0,))
    worker.start_progress_thread()
    ep = libucxx.UCXEndpoint.create_from_worker_address(worker, worker.address, endpoint_error_handling=False)
    into = bytearray(4)
    requests = [ep.tag_recv(Array(into), tag=UCXXTag(1)), ep.tag_send(Array(b"data"), tag=UCXXTag(1))]
    end = time.monotonic() + 10
    while not all(request.completed for request in requests) and time.monotonic() < end:
        time.sleep(0.01)
    assert into == b"data"
    assert "no GPU" in caplog.text
    worker.stop_progress_thread()


@pytest.mark.parametrize("progress_mode", ["blocking", "thread"])
def test_descriptors_above_those_of_select(progress_mode):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with contextlib.ExitStack() as opened:
        while opened.enter_context(open(os.devnull)).fileno() < 1024:
            pass
        worker = end_of("tag", progress_mode)
    assert worker.epoll_file_descriptor > 1023
    ep = libucxx.UCXEndpoint.create_from_worker_address(worker, worker.address, endpoint_error_handling=False)
    into = bytearray(4)
    receive = ep.tag_recv(Array(into), UCXXTag(1))
    for _ in range(100 if progress_mode == "blocking" else 0):
        worker.progress_worker_event(0)  # looks at the descriptor when there is nothing to do
    sent = ep.tag_send(Array(b"data"), UCXXTag(1))
    while progress_mode == "thread" and not receive.completed:
        assert worker._thread.is_alive()
        time.sleep(0)
    wait_requests(worker, progress_mode, [sent, receive])
    assert into == b"data"
    worker.stop_progress_thread()


def accepted(worker, tell, progress_mode="blocking"):
    eps = []
    listener = libucxx.UCXListener.create(worker, 0, eps.append, deliver_endpoint=True)
    assert isinstance(listener.ip, str) and 0 < listener.port < 65536
    tell(listener.port)
    while not eps:
        if progress_mode == "blocking":
            worker.progress()
    return listener, eps[0]


def send(ep, api, data):
    array = Array(data)
    return {
        "am": lambda: ep.am_send(array, user_header=b"head"),
        "stream": lambda: ep.stream_send(array),
        "tag": lambda: ep.tag_send(array, UCXXTag(5)),
    }[api]()


def recv(ep, api, into):
    array = Array(into)
    return {
        "am": ep.am_recv,
        "stream": lambda: ep.stream_recv(array),
        "tag": lambda: ep.tag_recv(array, UCXXTag(5), UCXXTagMaskFull),
    }[api]()


def got(request, api, into):
    if api == "am":
        assert request.recv_header == b"head"
        return bytes(request.recv_buffer)
    return bytes(into)


def echo(pipe, api, size, progress_mode):
    worker = end_of(api, progress_mode)
    listener, ep = accepted(worker, pipe.send, progress_mode)
    into = bytearray(size)
    request = recv(ep, api, into)
    wait_requests(worker, progress_mode, request)
    wait_requests(worker, progress_mode, [send(ep, api, got(request, api, into))])
    while not pipe.poll(0.01):
        worker.progress()
    worker.stop_progress_thread()


@pytest.mark.parametrize("progress_mode", ["blocking", "thread"])
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("size", [0, 10, 1 << 22])
def test_echo(api, size, progress_mode):
    worker = end_of(api, progress_mode)
    here, there = mp.Pipe()
    if api == "stream" and size == 0:
        ep = libucxx.UCXEndpoint.create_from_worker_address(worker, worker.address)
        for call in (ep.stream_send, ep.stream_recv):
            with pytest.raises(RuntimeError):
                call(Array(bytearray()))
        worker.stop_progress_thread()
        return
    process = mp.Process(target=echo, args=(there, api, size, progress_mode))
    process.start()
    ep = libucxx.UCXEndpoint.create(worker, "127.0.0.1", here.recv(), endpoint_error_handling=True)
    assert ep.worker_handle == worker.handle and ep.ucxx_worker_ptr == worker.ucxx_ptr and ep.alive
    data, into = os.urandom(size), bytearray(size)
    requests = [send(ep, api, data), recv(ep, api, into)]
    wait_requests(worker, progress_mode, requests)
    assert [r.status for r in requests] == [0, 0]
    assert got(requests[1], api, into) == data
    here.send("end")
    worker.stop_progress_thread()
    process.join(30)
    terminate_process(process)


def test_multi_and_probe():
    worker = end_of("tag", "blocking")
    eps = []
    listener = libucxx.UCXListener.create(
        worker, 0, lambda request: eps.append(listener.create_endpoint_from_conn_request(request, True))
    )
    ep = worker.create_endpoint_from_hostname("127.0.0.1", listener.port, True)
    while not eps:
        worker.progress()
    parts = [os.urandom(n) for n in (10, 0, 100_000)]
    requests = [ep.tag_send_multi(tuple(map(Array, parts)), UCXXTag(1)), eps[0].tag_recv_multi(UCXXTag(1))]
    wait_requests(worker, "blocking", requests)
    assert [bytes(b) for b in requests[1].py_buffers] == parts and requests[1].all_completed
    assert [bytes(r.py_buffer) for r in requests[1].requests] == parts
    assert not worker.tag_probe(UCXXTag(7))
    wait_requests(worker, "blocking", ep.tag_send(Array(b"message"), UCXXTag(7)))
    while not worker.tag_probe(UCXXTag(7)):
        worker.progress()
    found = worker.tag_probe(UCXXTag(7), remove=True)
    assert (found.matched, found.sender_tag, found.length) == (True, 7, 7) and found.handle
    assert repr(found) == f"TagProbeResult(matched=True, sender_tag=UCXXTag(7), length=7, handle={found.handle})"
    assert not worker.tag_probe(UCXXTag(7))
    into = bytearray(7)
    wait_requests(worker, "blocking", eps[0].tag_recv_with_handle(Array(into), found))
    assert into == b"message"
    ep.close_blocking()
    assert not ep.alive


def test_no_copies():
    """With a copy that is forgotten the receive would be taken back."""
    worker, _listener, ep, peer = a_pair()
    into = bytearray(3)
    receive = peer.tag_recv(Array(into), UCXXTag(1))
    for thing in (receive, peer.tag_recv_multi(UCXXTag(2))):
        for make in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="neither copied nor pickled"):
                make(thing)
    assert completes(worker, ep.tag_send(Array(b"abc"), UCXXTag(1))) and completes(worker, receive)
    assert into == b"abc"


def test_probe_results():
    worker, _listener, ep, peer = a_pair()
    none = worker.tag_probe(UCXXTag(7))
    assert not none and not none.matched and repr(none) == "TagProbeResult(matched=False)"
    for name in ("sender_tag", "length", "handle"):
        with pytest.raises(AttributeError):
            getattr(none, name)
    into = Array(bytearray(3))
    with pytest.raises(ValueError):
        worker.tag_recv_with_handle(into, none)
    with pytest.raises(TypeError):
        worker.tag_recv_with_handle(into, 5)
    assert completes(worker, ep.tag_send(Array(b"abc"), UCXXTag(7)))
    while not worker.tag_probe(UCXXTag(7)):
        pass
    there = worker.tag_probe(UCXXTag(7))
    assert isinstance(there.sender_tag, UCXXTag) and there.handle is None
    with pytest.raises(RuntimeError):
        worker.tag_recv_with_handle(into, there)
    removed = worker.tag_probe(UCXXTag(7), remove=True)
    assert isinstance(removed.handle, int) and removed.handle > 0
    assert completes(worker, peer.tag_recv_with_handle(arr=into, probe_result=removed))
    assert into.obj == b"abc" and removed.handle is None and removed.length == 3
    for receiver in (worker, peer):
        with pytest.raises(RuntimeError):
            receiver.tag_recv_with_handle(into, removed)


def test_requests():
    worker, _listener, ep, peer = a_pair()
    truncated = peer.tag_recv(Array(bytearray(2)), UCXXTag(1))
    assert completes(worker, truncated, ep.tag_send(Array(b"abc"), UCXXTag(1))) and truncated.status == -9
    multi = peer.tag_recv_multi(UCXXTag(2))
    with pytest.raises(RuntimeError):
        _ = multi.py_buffers
    sent = ep.tag_send_multi(arrays=(Array(b"abc"), Array(b"d")), tag=UCXXTag(2))
    assert completes(worker, sent, multi)
    assert type(multi.py_buffers) is list and sent.py_buffers == [] and len(sent.requests) == 2
    for request in multi.requests:
        assert isinstance(request, libucxx.UCXRequest) and request.completed and request.status == 0
        request.check_error()


def test_closing():
    worker, listener, ep, peer = a_pair()
    with pytest.raises(libucxx.UCXBusyError):
        libucxx.UCXListener.create(worker, listener.port, print)
    closing = ep.close()
    assert completes(worker, closing) and closing.status == 0 and not ep.alive
    ep.raise_on_error()
    while peer.alive:
        worker.progress()
    with pytest.raises(libucxx.UCXConnectionResetError):
        peer.raise_on_error()
    assert ep.close().completed
    peer.close_blocking()
    peer.raise_on_error()


def a_pair(features=(Feature.TAG, Feature.STREAM, Feature.AM, Feature.WAKEUP)):
    """Both ends of a connection of a worker with itself."""
    worker = libucxx.UCXWorker(libucxx.UCXContext(feature_flags=features))
    eps = []
    listener = libucxx.UCXListener.create(worker, 0, eps.append, deliver_endpoint=True)
    ep = libucxx.UCXEndpoint.create(worker, "127.0.0.1", listener.port)
    while not eps:
        worker.progress()
    return worker, listener, ep, eps[0]


def completes(worker, *requests, seconds=20.0):
    end = time.monotonic() + seconds
    while not all(request.completed for request in requests) and time.monotonic() < end:
        worker.progress()
    return all(request.completed for request in requests)


FORGETFUL = {
    "tag": (lambda ep: ep.tag_send(Array(b"abc"), UCXXTag(1)), lambda ep, into: ep.tag_recv(into, UCXXTag(1))),
    "worker": (
        lambda ep: ep.tag_send(Array(b"abc"), UCXXTag(1)),
        lambda ep, into: ep.worker.tag_recv(into, UCXXTag(1)),
    ),
    "stream": (lambda ep: ep.stream_send(Array(b"abc")), lambda ep, into: ep.stream_recv(into)),
    "am": (lambda ep: ep.am_send(Array(b"abc")), lambda ep, into: ep.am_recv()),
    "multi": (
        lambda ep: ep.tag_send_multi((Array(b"abc"),), UCXXTag(1)),
        lambda ep, into: ep.tag_recv_multi(UCXXTag(1)),
    ),
}


@pytest.mark.parametrize("api", FORGETFUL)
def test_a_forgotten_receive_takes_no_message(api):
    worker, _listener, ep, peer = a_pair()
    send, recv = FORGETFUL[api]
    forgotten = bytearray(3)
    request = recv(ep, Array(forgotten))
    del request
    gc.collect()
    assert completes(worker, send(peer))
    assert completes(worker, recv(ep, Array(bytearray(3)))) and forgotten == bytes(3)


@pytest.mark.parametrize("api", ["tag", "stream", "am", "multi"])
def test_a_send_to_a_peer_that_is_gone_is_a_request_that_failed(api):
    worker, _listener, ep, peer = a_pair()
    ep.close_blocking()
    while peer.alive:
        worker.progress()
    request = FORGETFUL[api][0](peer)
    assert completes(worker, request) and request.status == -25  # UCS_ERR_CONNECTION_RESET
    with pytest.raises(libucxx.UCXConnectionResetError):
        request.check_error()
    with pytest.raises(libucxx.UCXConnectionResetError):
        asyncio.run(request.wait())
    peer.close_blocking()
    with pytest.raises(libucxx.UCXCanceledError):
        FORGETFUL[api][0](peer)


def test_a_forgotten_send_arrives():
    worker, _listener, ep, peer = a_pair()
    data, into = os.urandom(1 << 24), bytearray(1 << 24)
    request = ep.tag_send(Array(data), UCXXTag(1))
    assert not request.completed
    del request
    gc.collect()
    assert completes(worker, peer.tag_recv(Array(into), UCXXTag(1))) and into == data


# ---- Multi-buffer messages by worker address ----


@pytest.fixture
def addressed():
    """Two workers, an endpoint from each to the other, and a wait for requests of them."""
    workers = [libucxx.UCXWorker(libucxx.UCXContext(feature_flags=(Feature.TAG, Feature.WAKEUP))) for _ in range(2)]
    eps = [
        libucxx.UCXEndpoint.create_from_worker_address(mine, other.address)
        for mine, other in (workers, reversed(workers))
    ]

    def done(*requests, seconds=20.0):
        end = time.monotonic() + seconds
        while not all(request.completed for request in requests) and time.monotonic() < end:
            for worker in workers:
                worker.progress()
        return all(request.completed for request in requests)

    yield *eps, done
    for ep in eps:
        ep.close_blocking()


MULTI = UCXXTag(9)


def send_parts(ep, *parts):
    return ep.tag_send_multi(tuple(map(Array, parts)), MULTI)


@pytest.mark.parametrize("sizes", [[], [3], [2, 0, 5], range(250), [3_000_000] * 3])
def test_multi_by_address(addressed, sizes):
    ep, peer, done = addressed
    parts = [os.urandom(size) for size in sizes]
    requests = [send_parts(ep, *parts), peer.tag_recv_multi(MULTI)]
    assert done(*requests) and [r.status for r in requests] == [0, 0]
    assert [bytes(b) for b in requests[1].py_buffers] == parts
    assert len(requests[0].requests) == len(requests[1].requests) == len(parts)


def test_many_multi_by_address_on_one_tag(addressed):
    ep, peer, done = addressed
    receives = [peer.tag_recv_multi(MULTI) for _ in range(20)]
    sends = [send_parts(ep, bytes([i]), bytes([i]) * 100_000) for i in range(20)]
    assert done(*receives, *sends)
    for i, receive in enumerate(receives):
        assert [bytes(b) for b in receive.py_buffers] == [bytes([i]), bytes([i]) * 100_000]


def test_multi_by_address_that_nobody_waits_for_any_more(addressed):
    """The message is the next receive's, whether it had begun to come or not."""
    ep, peer, done = addressed
    request = peer.tag_recv_multi(MULTI)
    del request
    cancelled = peer.tag_recv_multi(MULTI)
    cancelled.cancel()
    assert cancelled.status == -16
    assert done(send_parts(ep, b"one"))
    late = peer.tag_recv_multi(MULTI)
    assert done(late) and bytes(late.py_buffers[0]) == b"one"

    data = os.urandom(1 << 24)
    request, sent = peer.tag_recv_multi(MULTI), send_parts(ep, data)
    while not peer.worker._multi_lines[9, UCXXTagMaskFull.value]._incoming[0].listed:
        ep.worker.progress_once()
        peer.worker.progress_once()
    request.cancel()
    late = peer.tag_recv_multi(MULTI)
    assert done(late, sent) and bytes(late.py_buffers[0]) == data


def test_multi_by_address_ends_with_its_endpoint(addressed):
    _, peer, done = addressed
    requests = [peer.tag_recv_multi(UCXXTag(tag)) for tag in (1, 1, 2)]
    peer.close_blocking()
    assert done(*requests) and [r.status for r in requests] == [-16] * 3


def test_what_is_no_multi_by_address(addressed):
    ep, peer, done = addressed
    requests = [peer.tag_recv_multi(MULTI), ep.tag_send(Array(b"no header"), MULTI)]
    assert done(*requests)
    with pytest.raises(libucxx.UCXMessageTruncatedError):
        requests[0].check_error()
    requests = [peer.tag_recv_multi(MULTI), send_parts(ep, b"good")]
    assert done(*requests) and bytes(requests[0].py_buffers[0]) == b"good"


def leave(pipe):
    worker = end_of("tag", "blocking")
    listener, ep = accepted(worker, pipe.send)
    pipe.recv()


def test_peer_leaves():
    worker = end_of("tag", "blocking")
    here, there = mp.Pipe()
    process = mp.Process(target=leave, args=(there,))
    process.start()
    ep = libucxx.UCXEndpoint.create(worker, "127.0.0.1", here.recv(), endpoint_error_handling=True)
    closed = []
    ep.set_close_callback(lambda *args, **kwargs: closed.append((args, kwargs)), (1,), {"k": 2})
    request = ep.tag_recv(Array(bytearray(1)), UCXXTag(0))
    here.send("leave")
    while ep.alive:
        worker.progress()
    while not request.completed:
        worker.progress()
    with pytest.raises(libucxx.UCXCanceledError):
        request.check_error()
    assert request.status < 0 and closed == [((1,), {"k": 2})]
    with pytest.raises(libucxx.UCXConnectionResetError):
        ep.raise_on_error()
    process.join(30)
    terminate_process(process)


# ---- ucxx.testing ----


def fails():
    raise RuntimeError("subprocess raised")


def sleeps():
    import time

    time.sleep(60)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_helpers(method):
    context = multiprocessing.get_context(method)
    errors = context.Queue()
    process = context.Process(target=run_in_subprocess, args=(fails, errors))
    process.start()
    process.join()
    with pytest.raises(RuntimeError, match=r"(?s)did not exit cleanly.*Subprocess traceback.*subprocess raised"):
        terminate_process(process, error_queue=errors)
    process = context.Process(target=sleeps)
    process.start()
    join_processes([process], timeout=0.1)
    with pytest.raises(RuntimeError, match=r"Process did not exit cleanly \(exit code: -9\)"):
        terminate_process(process)


def test_version():
    assert libucxx.get_ucx_version() == ucxx.get_ucx_version() and len(ucxx.get_ucx_version()) == 3
