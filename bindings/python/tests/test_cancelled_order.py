"""Receives that are cancelled while large messages come lose none and change no order. TIMEOUT: 120 SANITIZED"""

import asyncio
import random

import pytest
from cancel_support import received_at_last

import hawser


def _content(number, size):
    return bytes([number]) * size


async def _send(endpoint, kind, sizes, chance):
    for i, size in enumerate(sizes):
        if kind == "object":
            await endpoint.send_obj([i, bytearray(_content(i, size))], tag=1)
        else:
            await endpoint.send(_content(i, size), tag=1)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 0.002)


async def _receive_one(endpoint, kind, size):
    if kind == "object":
        return (await endpoint.recv_obj(tag=1))[1]
    if kind == "right-sized":
        return await endpoint.recv(tag=1)
    into = bytearray(size)
    await endpoint.recv(into, tag=1)
    return into


async def _receive(endpoint, kind, sizes, chance):
    """How many receives were cancelled."""
    cancelled = 0
    for i, size in enumerate(sizes):
        received, times = await received_at_last(lambda size=size: _receive_one(endpoint, kind, size), chance)
        assert received == _content(i, size), f"message {i} of {size} bytes"
        cancelled += times
    return cancelled


@pytest.mark.parametrize("kind", ["buffer", "right-sized", "object"])
async def test_the_next_receive_gets_the_message_that_was_on_its_way(kind):
    chance = random.Random(3)
    cancelled = 0
    async with (
        hawser.listen() as listener,
        hawser.connect("127.0.0.1", listener.port) as client,
        await listener.accept() as server,
    ):
        for _ in range(30):
            jobs = []
            for sender, receiver in ((client, server), (server, client)):
                sizes = [chance.choice([10, 5_000, 100_000, 300_000]) for _ in range(20)]
                jobs += [_send(sender, kind, sizes, chance), _receive(receiver, kind, sizes, chance)]
            results = await asyncio.wait_for(asyncio.gather(*jobs), 60)
            cancelled += sum(n or 0 for n in results)
    assert cancelled > 100
