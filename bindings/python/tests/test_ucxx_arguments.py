"""Arguments that cannot be, of UCXX's API: each is refused by its name, and no message is lost for it."""

import asyncio
import math

import numpy as np
import pytest
from ucp_support import event_loop_policy, fresh_ucxx  # noqa: F401
from ucxx_support import pair

from hawser import ucxx
from hawser.ucxx._lib import libucxx
from hawser.ucxx._lib.arr import Array

HUGE = 2**53
NO_NUMBER = ["abc", b"abc", [1], object(), math.nan]
NO_OBJECT = [None, 5, -1, 2**70, "abc", b"abc", [1], object(), math.nan]
NO_FUNCTION = [None, 5, -1, "abc", [1], object(), math.nan]
NO_BYTES = [5, -1, HUGE, "abc", [1], object(), math.nan]
NO_TIME = [None, "abc", [1], object(), math.nan]
COLUMNS = np.arange(16, dtype="u1")[::2]
OBJECTS = np.array([object()] * 2)  # their bytes are pointers


def refused(call, name, wrong, **others):
    for value in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError), match=name):
            call(**{**others, name: value})


async def refused_soon(call, name, wrong, **others):
    for value in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError), match=name):
            async with asyncio.timeout(20):
                await call(**{**others, name: value})


async def test_of_the_module():
    refused(ucxx.create_listener, "callback_func", NO_FUNCTION)
    refused(ucxx.create_listener, "port", [*NO_NUMBER, {}, 2.5, -1, 2**16], callback_func=print)
    refused(ucxx.create_listener, "connect_timeout", NO_TIME, callback_func=print)
    refused(ucxx.continuous_ucx_progress, "event_loop", NO_FUNCTION[1:])
    await refused_soon(ucxx.create_endpoint, "port", [*NO_NUMBER, -1, 2**16], ip_address="127.0.0.1")
    await refused_soon(ucxx.create_endpoint, "connect_timeout", NO_TIME, ip_address="127.0.0.1", port=1)
    await refused_soon(ucxx.create_endpoint_from_worker_address, "address", [None, *NO_BYTES])
    refused(libucxx.UCXConfig, "user_options", [5, "abc", [1], {"TLS": 5}, {5: "tcp"}])
    refused(libucxx.UCXContext, "config_dict", [5, "abc", [1], {"TLS": None}])


@pytest.mark.filterwarnings("error")
async def test_error_handling_that_is_neither_true_nor_false(caplog):
    """It is looked at before there is a connection, which nobody would close."""
    listener, _kept, client = await pair()
    with pytest.raises(ValueError, match="ambiguous"):
        await ucxx.create_endpoint(ucxx.get_address(), listener.port, COLUMNS)
    with pytest.raises(ValueError, match="ambiguous"):
        ucxx.create_listener(print, endpoint_error_handling=COLUMNS)
    assert not client.closed and not caplog.records


async def test_of_an_endpoint():
    _listener, (server,), client = await pair()
    for call, name, wrong, given in (
        (client.am_send, "user_header", NO_BYTES, {"buffer": b"a"}),
        (client.am_send, "memory_type_policy", [5, "abc", object()], {"buffer": b"a"}),
        (client.am_send_iov, "buffers", [None, 5, object()], {}),
        (server.recv_obj, "allocator", NO_FUNCTION, {}),
        (server.recv_with_handle, "probe_result", NO_OBJECT, {"buffer": bytearray(1)}),
    ):
        await refused_soon(call, name, wrong, **given)
    refused(client.set_close_callback, "cb_func", NO_FUNCTION)
    refused(client.set_close_callback, "cb_args", [5, [1], "abc"], callback_func=print)
    refused(client.set_close_callback, "cb_kwargs", [5, [1], "abc"], callback_func=print)
    await client.send(b"data")
    async with asyncio.timeout(20):
        while not (found := server.tag_probe(remove=True)):
            await asyncio.sleep(0)
    for buffer in (5, "abc", b"data", COLUMNS):
        with pytest.raises((TypeError, ValueError)):
            await server.recv_with_handle(buffer, found)
    await server.recv_with_handle(into := bytearray(4), found)
    assert into == b"data"
    client.abort()
    with pytest.raises(ucxx.exceptions.UCXCloseError):
        client.tag_probe()


async def test_what_was_refused_is_not_counted():
    _listener, _kept, client = await pair()
    for buffer in (None, 5, "abc", COLUMNS, OBJECTS):
        for send, given in (
            (client.send, buffer),
            (client.am_send, buffer),
            (client.am_send_iov, [buffer]),
            (client.send_multi, [buffer]),
        ):
            with pytest.raises((TypeError, ValueError)):
                await send(given)
    assert client._send_count == 0


async def test_of_the_core():
    _listener, (server,), client = await pair()
    ep, peer = client._ep, server._ep
    array = Array(bytearray(3))
    worker = ep.worker
    for call, given in (
        (ep.tag_send, {"arr": array}),
        (ep.tag_send_multi, {"arrays": (array,)}),
        (peer.tag_recv, {"arr": array}),
        (peer.tag_recv_multi, {}),
        (worker.tag_recv, {"arr": array}),
        (worker.tag_probe, {}),
    ):
        refused(call, "tag", [None, *NO_NUMBER, "5", -1, 2**64], **given)
        if call.__name__ not in ("tag_send", "tag_send_multi"):
            refused(call, "tag_mask", [None, *NO_NUMBER, "5", -1, 2**64], tag=1, **given)
    refused(ep.tag_send_multi, "arrays", [None, 5, object()], tag=1)
    refused(worker.progress_worker_event, "epoll_timeout", ["abc", None, math.nan])
    refused(worker.set_progress_thread_start_callback, "cb_func", NO_FUNCTION)
    refused(worker.set_progress_thread_start_callback, "cb_args", [5, "abc"], cb_func=print)
    listen = libucxx.UCXListener.create
    refused(listen, "worker", NO_OBJECT, port=0, cb_func=print)
    refused(listen, "cb_func", NO_FUNCTION, worker=worker, port=0, deliver_endpoint=True)
    taking = libucxx.UCXEndpoint.create_from_conn_request
    refused(taking, "listener", NO_OBJECT, conn_request=5)
    refused(taking, "conn_request", [5, "abc"], listener=_listener._listener)
