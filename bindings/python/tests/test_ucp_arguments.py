"""Arguments that cannot be, of UCX-Py's API: each is refused by its name, and no message is lost for it."""

import asyncio
import math

import numpy as np
import pytest
from ucp._libs import ucx_api
from ucp._libs.arr import Array
from ucp._libs.utils import get_address, parse_bytes
from ucp_support import connected, event_loop_policy, fresh_ucp  # noqa: F401

import ucp
from ucp import comm

HUGE = 2**53
NO_NUMBER = [None, "abc", b"abc", [1], object(), 2.5, math.nan]
NO_OBJECT = [None, 5, -1, 2**70, "abc", b"abc", [1], object(), math.nan]
NO_FUNCTION = [5, -1, "abc", [1], object(), math.nan]
OBJECTS = np.array([object()] * 2)  # their bytes are pointers
NO_BYTES = [None, 5, -1, HUGE, 2**70, "abc", [1], object(), math.nan, OBJECTS]
NO_DICT = [5, "abc", [1], [("TLS", "tcp")], object(), math.nan]
COLUMNS = np.arange(16, dtype="u1")[::2]


def refused(call, name, wrong, *given, **others):
    for value in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError), match=name):
            call(*given, **{**others, name: value})


async def refused_soon(call, name, wrong, **others):
    for value in wrong:
        with pytest.raises((TypeError, ValueError, OverflowError), match=name):
            async with asyncio.timeout(20):
                await call(**{**others, name: value})


async def pair(**options):
    accepted = asyncio.get_running_loop().create_future()
    listener, client = await connected(accepted.set_result, **options)
    return listener, client, await accepted


async def test_of_the_module():
    refused(ucp.init, "options", NO_DICT)
    for options in ({"TLS": 5}, {5: "tcp"}, {"TLS": None}):
        with pytest.raises(TypeError, match="config_dict"):
            ucp.init(options=options)
    for seconds in ("abc", [1], object(), math.nan, 10**400):
        with pytest.raises(ValueError, match="connect timeout"):
            ucp.init(connect_timeout=seconds)
    refused(ucp.create_listener, "callback_func", [None, *NO_FUNCTION])
    refused(ucp.create_listener, "port", [*NO_NUMBER[1:], -1, 2**16, HUGE], callback_func=print)
    refused(ucp.continuous_ucx_progress, "event_loop", NO_FUNCTION)
    refused(ucp.register_am_allocator, "allocator", [None, *NO_FUNCTION], allocator_type="host")
    refused(ucp.register_am_allocator, "allocator_type", [None, 5, [1], {}], allocator=bytearray)
    refused(get_address, "ifname", [5, b"lo", [1]])
    refused(parse_bytes, "text", [None, [1], b"5"])
    await refused_soon(ucp.create_endpoint, "port", [*NO_NUMBER[1:], -1, 2**16], ip_address="127.0.0.1")
    await refused_soon(ucp.create_endpoint_from_worker_address, "address", NO_BYTES)
    await refused_soon(ucp.recv, "tag", [*NO_NUMBER, -1, 2**64], buffer=bytearray(1))
    refused(ucp.Endpoint, "endpoint", NO_OBJECT, ctx=None)
    refused(ucp.Listener, "backend", NO_OBJECT)


@pytest.mark.filterwarnings("error")
async def test_error_handling_that_is_neither_true_nor_false():
    """It is looked at before there is a connection, which nobody would close."""
    listener, client, _ = await pair()
    for call in (
        lambda: ucp.create_endpoint(ucp.get_address(), listener.port, COLUMNS),
        lambda: ucp.create_endpoint_from_worker_address(ucp.get_worker_address(), COLUMNS),
    ):
        with pytest.raises(ValueError, match="ambiguous"):
            await call()
    with pytest.raises(ValueError, match="ambiguous"):
        ucp.create_listener(print, endpoint_error_handling=COLUMNS)
    assert not client.closed()


async def test_of_an_endpoint():
    _listener, client, server = await pair()
    refused(client.set_close_callback, "cb_func", NO_FUNCTION)
    client.set_close_callback(print)
    client.set_close_callback(None)
    refused(client.close_after_n_recv, "n", [*NO_NUMBER, math.inf])
    for tag in ([1], {}, bytearray(1)):
        await refused_soon(client.send_obj, "tag", [tag], obj=b"a")
        await refused_soon(client.send, "tag", [tag], buffer=b"a")
        await refused_soon(client.recv, "tag", [tag], buffer=bytearray(1))
    forced = [*NO_NUMBER[1:], -1, 2**64]
    await refused_soon(client.send, "tag", forced, buffer=b"a", force_tag=True)
    await refused_soon(client.recv, "tag", forced, buffer=bytearray(1), force_tag=True)
    await client.send_obj(b"data")
    await refused_soon(server.recv_obj, "allocator", [None, *NO_FUNCTION])
    assert await server.recv_obj() == b"data"  # the size was not taken


async def test_what_was_refused_is_not_counted():
    """The peer closes once it has received what was sent: it waits for no message that never was."""
    _listener, client, server = await pair(endpoint_error_handling=False)
    for buffer in (None, 5, "abc", COLUMNS, OBJECTS):
        for send in (client.send, client.am_send, client.send_obj):
            with pytest.raises((TypeError, ValueError)):
                await send(buffer)
    with pytest.raises(OverflowError):
        await client.send(b"a", tag=2**64, force_tag=True)
    await client.send(b"abc")
    got = bytearray(3)
    await server.recv(got)
    await client.close()
    async with asyncio.timeout(20):
        while not server.closed():
            await asyncio.sleep(0.001)
    assert got == b"abc"


class Core:
    """A worker of the core, connected to itself."""

    def __init__(self):
        self.context = ucx_api.UCXContext()
        self.worker = ucx_api.UCXWorker(self.context)
        self.accepted = []
        self.listener = ucx_api.UCXListener(self.worker, 0, self.accept)
        self.ep = ucx_api.UCXEndpoint.create(self.worker, "127.0.0.1", self.listener.port, True)
        while not self.accepted:
            self.worker.progress()
        self.memory = self.context.alloc(64)
        self.rkey = self.ep.unpack_rkey(self.memory.pack_rkey())
        self.remote = ucx_api.RemoteMemory(self.rkey, self.memory.address, 64)

    def accept(self, request):
        self.accepted.append(ucx_api.UCXEndpoint.create_from_conn_request(self.worker, request, True))


def test_of_the_cores_objects():
    core = Core()
    refused(ucx_api.UCXContext, "config_dict", [None, *NO_DICT])
    refused(ucx_api.UCXContext, "feature_flags", [None, 5, "abc", [1], object(), math.nan])
    refused(ucx_api.UCXWorker, "context", NO_OBJECT)
    refused(ucx_api.UCXListener, "worker", NO_OBJECT, port=0, cb_func=print)
    refused(ucx_api.UCXListener, "port", NO_NUMBER[1:], worker=core.worker, cb_func=print)
    refused(ucx_api.UCXListener, "cb_func", [None, *NO_FUNCTION], worker=core.worker, port=0)
    refused(ucx_api.UCXListener, "cb_args", [5, [1], "abc", {}], worker=core.worker, port=0, cb_func=print)
    create = ucx_api.UCXEndpoint.create
    refused(create, "worker", NO_OBJECT, ip_address="127.0.0.1", port=1, endpoint_error_handling=True)
    taking = ucx_api.UCXEndpoint.create_from_conn_request
    refused(taking, "conn_request", [*NO_NUMBER, 5, -1, 2**70], worker=core.worker, endpoint_error_handling=True)
    by_address = ucx_api.UCXEndpoint.create_from_worker_address
    refused(by_address, "address", NO_BYTES, worker=core.worker, endpoint_error_handling=True)
    refused(core.context.alloc, "size", [*NO_NUMBER, -1, 2**64])
    refused(core.ep.unpack_rkey, "rkey", NO_BYTES)
    refused(ucx_api.UCXAddress.from_buffer, "buffer", NO_BYTES)
    refused(ucx_api.PackedRemoteKey.from_buffer, "buffer", NO_BYTES)
    refused(ucx_api.UCXRkey, "ep", NO_OBJECT, rkey=core.memory.pack_rkey())
    refused(core.worker.tag_probe, "tag", [*NO_NUMBER, -1, 2**64])
    refused(core.worker.request_cancel, "req", NO_OBJECT)
    refused(core.worker.register_am_allocator, "allocator_type", NO_OBJECT, allocator=bytearray)
    for flush in (core.worker.flush, core.ep.flush):
        refused(flush, "cb_func", [None, *NO_FUNCTION])
        refused(flush, "cb_args", [5, [1], "abc"], cb_func=print)
    for name in ("put_nb", "get_nb", "put_nbi", "get_nbi"):
        given = {"memory": bytearray(3), **({"cb_func": print} if name.endswith("nb") else {})}
        refused(getattr(core.remote, name), "offset", NO_NUMBER, **given)
        refused(getattr(core.remote, name), "size", NO_NUMBER, **given)
    file = ucx_api.UCXIO(core.memory.address, 64, core.rkey)
    refused(file.seek, "pos", NO_NUMBER)
    refused(file.read, "size", NO_NUMBER[1:])


def transfers(core, buffer):
    """Each with all its arguments, and where to look for what it would have taken."""
    ended = {"cb_func": print}
    sent = {"ep": core.ep, "buffer": buffer, "nbytes": 3}
    moved = {"buffer": buffer, "nbytes": 3, "remote_addr": core.memory.address, "rkey": core.rkey}
    return [
        (ucx_api.tag_send_nb, {**sent, "tag": 1, **ended}),
        (ucx_api.stream_send_nb, {**sent, **ended}),
        (ucx_api.am_send_nbx, {**sent, **ended}),
        (ucx_api.stream_recv_nb, {**sent, "ep": core.accepted[0], **ended}),
        (ucx_api.tag_recv_nb, {"worker": core.worker, "buffer": buffer, "nbytes": 3, "tag": 7, **ended}),
        (ucx_api.put_nb, {**moved, **ended}),
        (ucx_api.get_nb, {**moved, **ended}),
        (ucx_api.put_nbi, moved),
        (ucx_api.get_nbi, moved),
    ]


def test_of_the_cores_transfers():
    core = Core()
    for call, given in transfers(core, Array(bytearray(3))):
        wrong = {
            "ep": NO_OBJECT,
            "worker": NO_OBJECT,
            "rkey": NO_OBJECT,
            "nbytes": [*NO_NUMBER, -1, 2**64],
            "tag": [*NO_NUMBER, -1, 2**64],
            "remote_addr": [*NO_NUMBER, -1, 2**64],
            "cb_func": [None, *NO_FUNCTION],
        }
        for name in given.keys() & wrong.keys():
            refused(call, name, wrong[name], **given)
        if "cb_func" in given:
            refused(call, "cb_args", [5, [1], "abc", {}], **given)
            refused(call, "cb_kwargs", [5, [1], "abc", ()], **given)
    refused(ucx_api.tag_recv_nb, "tag_mask", NO_NUMBER, **transfers(core, bytearray(3))[4][1])
    refused(ucx_api.am_recv_nb, "cb_func", [None, *NO_FUNCTION], ep=core.accepted[0])
    refused(ucx_api.am_recv_nb, "ep", NO_OBJECT, cb_func=print)
    # Nothing waits for the messages that come now.
    took = []
    ucx_api.tag_send_nb(core.ep, b"abc", 3, 7, lambda *_: None)
    ucx_api.am_send_nbx(core.ep, b"abc", 3, lambda *_: None)
    into = bytearray(3)
    ucx_api.tag_recv_nb(core.worker, into, 3, 7, lambda _request, error: took.append(error))
    ucx_api.am_recv_nb(core.accepted[0], lambda data, error: took.append((bytes(data), error)))
    while len(took) < 2:
        core.worker.progress()
    assert into == b"abc" and None in took and (b"abc", None) in took


def test_python_objects_are_no_memory():
    """Also a part of them: bytes of a peer in the place of their pointers would end the process."""
    core = Core()
    for call, given in transfers(core, OBJECTS):
        for nbytes in (3, OBJECTS.nbytes):
            with pytest.raises(TypeError, match="holds Python objects"):
                call(**{**given, "nbytes": nbytes})
    with pytest.raises(TypeError, match="holds Python objects"):
        core.context.map(OBJECTS)


async def test_of_futures_of_the_core():
    core = Core()
    closed = asyncio.new_event_loop()
    closed.close()
    message = Array(b"abc")
    for call in (comm.tag_send, comm.tag_recv):
        for wrong in NO_OBJECT:
            with pytest.raises(TypeError, match="ep"):
                call(wrong, message, 3, 7)
        for loop in (5, "abc", object()):
            with pytest.raises(TypeError, match="event_loop"):
                call(core.ep, message, 3, 7, event_loop=loop)
        with pytest.raises(RuntimeError, match="event_loop: it is closed"):
            call(core.ep, message, 3, 7, event_loop=closed)
    into = bytearray(3)
    await comm.tag_send(core.ep, message, 3, 7)
    async with asyncio.timeout(20):
        await comm.tag_recv(core.ep, Array(into), 3, 7)
    assert into == b"abc"
