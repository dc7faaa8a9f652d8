"""The conformance vectors through the extension: the same wrong calls as through every other binding, the same codes.

What it takes as an object, not as an id, can be stale but nothing else: such calls are made with a closed worker and
what came over it.
"""

import json
import sys
from pathlib import Path

import pytest

import hawser
from hawser import _core, _swig

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "abi"))
from world import living_and_stale, vectors  # noqa: E402

CODES = {e["name"]: e["code"] for e in json.loads((ROOT / "abi" / "abi.json").read_text())["errors"]}
EXCLUDED = json.loads((ROOT / "abi" / "exclusions.json").read_text())["python-extension"]


@pytest.fixture(scope="module")
def worker():
    with hawser.Context() as context, hawser.Worker(context) as worker:
        yield worker


@pytest.fixture(scope="module")
def gone():
    """A closed worker, and data of an active message that came over it."""
    with hawser.Context() as context, hawser.Worker(context) as worker:
        with hawser.listen(host="127.0.0.1", worker=worker) as listener:
            accepting = listener.accept()
            with hawser.connect("127.0.0.1", listener.port, worker=worker).wait(20) as client:
                with accepting.wait(20) as server:
                    client.send_am(b"data").wait(20)
                    data = server.recv_am().wait(20)[1]
        worker.close_wait()
        return worker, data


@pytest.fixture
def calls(worker):
    """Function -> a call of the extension that comes down to it, with the id that the vector has wrong."""

    def endpoint(id):
        e = _core.Endpoint()
        e._attach(worker, id)
        return e

    return {
        "hws_close": _core.close,
        "hws_close_wait": lambda id: _core.close_wait(id, 0),
        "hws_kind": _core.kind,
        "hws_abort": _core.abort,
        "hws_accept": _core.accept,
        "hws_reject": _core.reject,
        "hws_cancel": _core.cancel,
        "hws_describe": _core.describe,
        "hws_stats_get": _core.stats,
        "hws_listener_query": _core.listener_query,
        "hws_endpoint_query": _core.endpoint_query,
        "hws_fence": _core.fence,
        "hws_flush": lambda id: _core.flush(worker, id, None),
        "hws_worker_open": lambda id: _core.Worker()._open(id, 0, 0, None, 0, 0, 0),
        "hws_worker_signal": _core.signal,
        "hws_worker_address": lambda id: _core.worker_address(id, 0),
        "hws_am_header_max": _core.am_header_max,
        "hws_tag_send": lambda id: endpoint(id).send(b"data"),
        "hws_tag_send_sync": lambda id: endpoint(id).send(b"data", sync=True),
        "hws_tag_recv": lambda id: endpoint(id)._recv(bytearray(8)),
        "hws_tag_probe": lambda id: _core.probe(id, 1, 1, False),
        "hws_message_return": _core.message_return,
        "hws_message_recv": lambda id: _core.message_recv(worker, id, bytearray(8), None),
        "hws_stream_send": lambda id: endpoint(id).stream_send(b"data"),
        "hws_stream_recv": lambda id: endpoint(id).stream_recv(bytearray(8)),
        "hws_am_send": lambda id: endpoint(id).send_am(b"data", 1),
        "hws_multi_send": lambda id: _core.multi_send(worker, id, [b"data"], 1, None, 0, None),
        "hws_multi_recv": lambda id: _core.multi_recv(worker, id, 1, 1, None),
        "hws_mem_register": lambda id: _core.mem_register(id, _core.pointer(bytearray(8)), 8, 0),
        "hws_mem_alloc": lambda id: _core.mem_alloc(id, 8),
        "hws_mem_query": _core.mem_query,
        "hws_rkey_pack": lambda id: _core.rkey_pack(id, 0),
        "hws_rkey_unpack": lambda id: _core.rkey_unpack(id, bytes(64), 0),
        "hws_rkey_query": _core.rkey_query,
        "hws_put": lambda id: _core.put(worker, id, 0, b"data", None, None),
        "hws_get": lambda id: _core.get(worker, id, 0, bytearray(8), None),
        "hws_put_notify": lambda id: _core.put_notify(worker, id, 0, b"data", 1, None, None),
        "hws_rkey_ptr": lambda id: _core.rkey_ptr(id, 0),
        "hws_rkey_compare": _core.rkey_compare,
        "hws_mem_advise": lambda id: _core.mem_advise(id, 0, 8, 0),
        "hws_blob_pack": lambda id: _core.blob_pack(id, 0, ()),
        "hws_plan_open": lambda id: _core.plan_open(id, ((10, 0, 0, 0, 8, 0, 0),)),
        "hws_plan_post": lambda id: _core.plan_post(worker, id, None, None, None),
        "hws_atomic": lambda id: _core.atomic(worker, id, 0, 1, 8, 1, 1, None),
    }


@pytest.fixture
def calls_of_objects(gone):
    """Function -> a call whose id is that of an object."""
    worker, data = gone
    return {
        "hws_worker_progress": worker.progress,
        "hws_worker_arm": worker._arm,
        "hws_worker_wait": lambda: worker._wait(0.0),
        "hws_listen": lambda: _core.listen(worker, "127.0.0.1", 0, 0, 0, 0),
        "hws_connect": lambda: _core.connect(worker, "127.0.0.1", 1, 0, 0, None, 0),
        "hws_connect_address": lambda: _core.connect_address(worker, bytes(64), 0, 0, 0),
        "hws_am_handler": lambda: _core.am_handler(worker, 1, 0, True),
        "hws_am_recv": lambda: data.fetch(bytearray(8)),
        "hws_buffer_alloc": lambda: worker.buffer(8),
    }


def code_of(call, *args):
    try:
        result = call(*args)
    except hawser.HawserError as error:
        assert error.text
        return error.code
    return result if isinstance(result, int) else 0


def test_ids(calls, calls_of_objects):
    ids = living_and_stale(_swig)
    found, wanted = {}, {}
    for vector in vectors("ids"):
        function, name = vector["function"], vector["name"]
        given = [given["id"] for given in vector["args"] if "id" in given]
        wrong = given[0]
        if function in calls:
            found[name] = code_of(
                calls[function], *(ids[id] for id in given[: 2 if function == "hws_rkey_compare" else 1])
            )
        elif function in calls_of_objects and wrong in ("stale worker", "stale buffer"):
            found[name] = code_of(calls_of_objects[function])
        else:
            continue
        wanted[name] = CODES[vector["expect"]]
    assert found == wanted
    assert len(found) > 450


def test_every_function_is_called_or_excluded(calls, calls_of_objects):
    there = {v["function"] for v in vectors("ids")} - set(EXCLUDED)
    # The descriptor is asked for when a worker opens, never later; Segments of a closed worker know by themselves; a
    # message whose buffer is gone with its worker needs no taking. What is returned is an operation's: it has ended.
    alone = {"hws_worker_fd", "hws_multi_fetch", "hws_multi_return", "hws_buffer_taken"}
    alone |= {"hws_tag_return", "hws_stream_return", "hws_segments_return"}
    assert there == set(calls) | set(calls_of_objects) | alone
