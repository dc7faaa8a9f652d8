"""Tagged messages. SANITIZED"""

import asyncio

import numpy as np
import pytest

import hawser

SIZES = [0, 1, 8, 1000, 8192, 70_000, 1 << 20, 5_000_000]


@pytest.mark.parametrize("size", SIZES)
async def test_every_size(pair, size):
    client, server = pair
    out = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    into = np.zeros(size, dtype=np.uint8)
    sending = client.send(out, 7)
    assert await server.recv(into, 7) == size
    assert await sending is None
    assert (into == out).all()
    sending = server.send(out, 8)
    got = await client.recv(tag=8)
    await sending
    assert isinstance(got, bytearray) and got == out.tobytes()


async def test_message_before_receive(pair):
    client, server = pair
    for size in (3, 100_000):
        sending = client.send(b"x" * size, 1)
        await asyncio.sleep(0.02)
        probed = server.probe(1)
        assert (probed.length, probed.tag, probed.endpoint) == (size, 1, server)
        assert await server.recv(tag=1) == b"x" * size
        await sending
    assert server.probe(1) is None


async def test_take(pair, worker):
    client, server = pair
    await client.send(b"first", 1)
    await client.send(b"second", 1)
    while (message := server.take(1)) is None:
        await asyncio.sleep(0)
    into = bytearray(6)
    assert await server.recv(into, 1) == 6
    assert into == b"second"
    assert await message.recv(into) == 5
    assert into == b"firstd"
    await client.send(b"third", 2)
    while (message := worker.take(2)) is None:
        await asyncio.sleep(0)
    message.drop()
    assert worker.probe(2) is None


async def test_receive_waits_in_order(pair):
    client, server = pair
    receives = [server.recv(tag=3) for _ in range(4)]
    tasks = [asyncio.ensure_future(r) for r in receives]
    await asyncio.sleep(0)
    for i in range(4):
        await client.send(bytes([i]), 3)
    assert await asyncio.gather(*tasks) == [bytearray([i]) for i in range(4)]


async def test_masks_and_workers(pair, worker):
    client, server = pair
    into = bytearray(4)
    receive = server.recv(into, 0x100, 0xFF00)
    await client.send(b"mask", 0x123)
    assert await receive == 4
    assert receive.tag == 0x123
    receive = worker.recv(into, 0, 0)
    await client.send(b"any!", 0xFFFFFFFFFFFFFFFF)
    assert await receive == 4
    assert into == b"any!" and receive.tag == 0xFFFFFFFFFFFFFFFF


async def test_too_long(pair):
    client, server = pair
    for before in (True, False):
        for size in (11, 100_000):
            sending = client.send(b"x" * size, 1)
            if before:
                while server.probe(1) is None:
                    await asyncio.sleep(0)
            with pytest.raises(hawser.TruncatedError) as caught:
                await server.recv(bytearray(10), 1)
            assert caught.value.length == size
            await sending


async def test_synchronous_send(pair):
    client, server = pair
    sending = client.send(b"now", 1, sync=True)
    await asyncio.sleep(0.05)
    assert not sending.done()
    assert await server.recv(tag=1) == b"now"
    await sending


async def test_deadline(pair):
    _, server = pair
    start = asyncio.get_running_loop().time()
    with pytest.raises(hawser.TimedOutError):
        await server.recv(bytearray(1), 1, timeout=0.05)
    with pytest.raises(TimeoutError):
        await server.recv(tag=1, timeout=0.05)
    assert 0.09 < asyncio.get_running_loop().time() - start < 5


async def test_many_at_once(pair):
    client, server = pair
    count = 2000
    buffers = [bytearray(8) for _ in range(count)]
    receives = [server.recv(b, i) for i, b in enumerate(buffers)]
    sends = [client.send(i.to_bytes(8, "little"), i) for i in reversed(range(count))]
    assert await asyncio.gather(*receives) == [8] * count
    await asyncio.gather(*sends)
    assert [int.from_bytes(b, "little") for b in buffers] == list(range(count))


async def test_arguments(pair):
    client, server = pair
    with pytest.raises(TypeError):
        client.send()
    with pytest.raises(TypeError):
        client.send(b"", nonsense=1)
    with pytest.raises(TypeError):
        client.send(b"", 1, tag=1)
    with pytest.raises(TypeError):
        client.send("text")
    with pytest.raises(OverflowError):
        client.send(b"", -1)
    with pytest.raises(OverflowError):
        server.recv(bytearray(1), 1 << 64)
