"""recv_obj() that is interrupted between the size of an object and its data: the object is the next call's."""

import asyncio
import struct

import pytest
from ucp_support import event_loop_policy, fresh_ucp, fresh_ucxx  # noqa: F401

import ucp
from hawser import ucxx


@pytest.fixture(params=[ucp, ucxx], ids=["ucp", "ucxx"])
def api(request):
    return request.param


async def pair(api):
    accepted = asyncio.get_running_loop().create_future()
    listener = api.create_listener(accepted.set_result)
    client = await api.create_endpoint(api.get_address(), listener.port)
    return listener, client, await accepted


@pytest.mark.parametrize("tag", [None, "objects"])
async def test_the_data_comes_late(api, tag):
    _listener, client, server = await pair(api)
    await client.send(struct.pack("Q", 5), tag=tag)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await server.recv_obj(tag)
    await client.send(b"first", tag=tag)
    await client.send_obj(b"second", tag=tag)
    async with asyncio.timeout(20):
        assert [await server.recv_obj(tag), await server.recv_obj(tag)] == [b"first", b"second"]


async def test_interrupted_at_any_moment(api):
    """Also while the data is fetched."""
    _listener, client, server = await pair(api)
    objects = [bytes([n]) * (16 << 20) for n in range(8)]
    sending = asyncio.gather(*(client.send_obj(obj) for obj in objects))
    got, patience = [], 0.0
    async with asyncio.timeout(60):
        while len(got) < len(objects):
            try:
                async with asyncio.timeout(patience):
                    got.append(await server.recv_obj())
                patience = 0.0
            except TimeoutError:
                patience += 0.0005
        await sending
    assert all(bytes(one) == other for one, other in zip(got, objects, strict=True))


async def test_an_allocator_that_fails(api):
    def none_left(_size):
        raise MemoryError

    _listener, client, server = await pair(api)
    await client.send_obj(b"12345678")
    with pytest.raises(MemoryError):
        await server.recv_obj(allocator=none_left)
    for wrong in (lambda _: None, lambda _: b"12345678", lambda _: "abc", lambda n: memoryview(bytearray(2 * n))[::2]):
        with pytest.raises((TypeError, ValueError)):
            await server.recv_obj(allocator=wrong)
    async with asyncio.timeout(20):
        assert await server.recv_obj() == b"12345678"


async def test_a_buffer_that_is_too_small(api):
    """The message is gone then, and the next object whole."""
    _listener, client, server = await pair(api)
    await client.send_obj(b"12345678")
    await client.send_obj(b"next")
    with pytest.raises(api.exceptions.UCXError, match=r"truncated|longer"):
        await server.recv_obj(allocator=lambda n: bytearray(n - 1))
    async with asyncio.timeout(20):
        assert await server.recv_obj() == b"next"
