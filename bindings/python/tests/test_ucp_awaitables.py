"""What send() and recv() of hawser.ucp give behaves as UCX-Py's coroutines do. TIMEOUT: 120 SANITIZED"""

import asyncio
import contextlib
import gc
import random
import sys
import weakref

import numpy as np
import pytest
import ucp._libs.arr
from cancel_support import received_at_last
from ucp_support import connected, event_loop_policy, fresh_ucp  # noqa: F401

import ucp
from hawser._core import Operation


async def _both():
    """The two ends of a connection, and what is to be closed."""
    accepted = asyncio.get_running_loop().create_future()
    listener, client = await connected(accepted.set_result)
    return listener, client, await accepted


async def _close(*things):
    for thing in things:
        closed = thing.close()
        if closed is not None:
            await closed


@pytest.mark.parametrize("wrap", [lambda coroutine: coroutine, asyncio.create_task], ids=["itself", "task"])
async def test_gather(wrap):
    listener, client, server = await _both()
    into = [bytearray(4) for _ in range(20)]
    gotten = asyncio.gather(*(wrap(server.recv(b)) for b in into))
    assert await asyncio.gather(*(wrap(client.send(b"%04d" % i)) for i in range(20))) == [True] * 20
    assert await gotten == [True] * 20
    assert [bytes(b) for b in into] == [b"%04d" % i for i in range(20)]
    assert (client._send_count, server._recv_count, server._finished_recv_count) == (20, 20, 20)
    await _close(client, server, listener)


@pytest.mark.parametrize("wrap", [lambda coroutine: coroutine, asyncio.create_task], ids=["itself", "task"])
async def test_what_has_returned_holds_nothing(wrap):
    """As UCX-Py's coroutines: an endpoint that is forgotten is closed then, and reset() is not refused."""
    listener, client, server = await _both()
    out, into, answer = np.ones(4, "u1"), np.zeros(4, "u1"), np.zeros(4, "u1")
    messages = [wrap(server.recv(into)), wrap(client.recv(answer)), wrap(client.send(out)), wrap(server.send(into))]
    await asyncio.gather(*messages)
    refs = [weakref.ref(thing) for thing in (client, out, into, answer)]
    del client, out, into, answer
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4 and messages
    await _close(server, listener)


@pytest.mark.parametrize("tag", [None, "a tag"])
async def test_a_receive_that_is_given_up_loses_nothing(tag):
    """Also if its message comes in the very turn in which the time is up. UCX-Py's is lost."""
    listener, client, server = await _both()
    count, got, late = 2000, [], 0
    # uvloop's timers have milliseconds.
    unit = 0.003 if type(asyncio.get_running_loop()).__module__ == "uvloop" else 0.0005

    async def receive_all():
        nonlocal late
        while len(got) < count:
            into = bytearray(4)
            try:
                async with asyncio.timeout(random.random() * unit):
                    await server.recv(into, tag)
                got.append(int.from_bytes(into, "little"))
            except TimeoutError:
                late += 1

    receiving = asyncio.create_task(receive_all())
    for number in range(count):
        await client.send(number.to_bytes(4, "little"), tag)
        if number % 3 == 0:
            await asyncio.sleep(random.random() * unit)
    await asyncio.wait_for(receiving, 20)
    assert got == list(range(count))
    assert late > 100
    assert server._finished_recv_count == count
    await _close(client, server, listener)


async def test_each_is_its_own():
    """Sends that are done at once are not one object: a set of them has as many."""
    listener, client, server = await _both()
    n = 0
    for done in asyncio.as_completed([client.send(b"x") for _ in range(5)]):
        assert await done is True
        n += 1
    assert n == 5
    await _close(client, server, listener)


async def test_ways_of_giving_arguments():
    listener, client, server = await _both()
    data, into = np.arange(10), np.zeros(10, "i8")
    for send, receive in [
        (lambda: client.send(data), lambda: server.recv(into)),
        (lambda: client.send(buffer=data), lambda: server.recv(buffer=into)),
        (lambda: client.send(data, None, False), lambda: server.recv(into, tag=None, force_tag=False)),
        (lambda: client.send(ucp._libs.arr.Array(data)), lambda: server.recv(ucp._libs.arr.Array(into))),
        (lambda: client.send(data, "a tag"), lambda: server.recv(into, "a tag")),
        (lambda: client.send(data, tag=7, force_tag=True), lambda: server.recv(into, tag=7, force_tag=True)),
    ]:
        into[:] = 0
        assert await asyncio.gather(send(), receive()) == [True, True]
        assert (into == data).all()
    assert isinstance(server.recv(into), Operation)
    for wrong in [(), (data, None, False, 1)]:
        with pytest.raises(TypeError):
            client.send(*wrong)
    with pytest.raises(TypeError):
        client.send(data, colour=1)
    await _close(client, server, listener)


async def test_bad_buffers_are_told_when_awaited():
    listener, client, server = await _both()
    not_contiguous = client.send(np.arange(10)[::2])
    read_only = server.recv(b"1234567890")
    with pytest.raises(ValueError, match="contiguous"):
        await not_contiguous
    with pytest.raises(ValueError, match="readonly"):
        await read_only
    assert server._finished_recv_count == 0
    await _close(client, server, listener)


@pytest.mark.parametrize("wrap", [lambda coroutine: coroutine, asyncio.create_task], ids=["itself", "task"])
async def test_failures_of_a_gather(wrap):
    """A short message, one that is too long, and one that never comes."""
    listener, client, server = await _both()
    gotten = asyncio.gather(*(wrap(server.recv(bytearray(4))) for _ in range(3)), return_exceptions=True)
    await client.send(b"123")
    await client.send(b"12345")
    await asyncio.sleep(0.2)
    server.abort()
    short, long, never = await gotten
    assert isinstance(short, ucp.exceptions.UCXMsgTruncated) and "3 (got) != 4 (expected)" in str(short)
    assert isinstance(long, ucp.exceptions.UCXError) and "Recv #001" in str(long)
    assert isinstance(never, ucp.exceptions.UCXCanceled) and "nbytes: 4, type: <class 'bytearray'>" in str(never)
    assert long.__cause__ is not None
    assert server._finished_recv_count == 0
    await _close(client, listener)


async def test_messages_that_nobody_asks_for_count():
    """close_after_n_recv() closes also if the results of the receives are never looked at."""
    listener, client, server = await _both()
    server.close_after_n_recv(3)
    pending = [asyncio.ensure_future(server.recv(bytearray(1))) for _ in range(3)]
    for _ in range(3):
        await client.send(b"x")
    async with asyncio.timeout(10):
        while not server.closed():
            await asyncio.sleep(0.01)
    assert all(p.done() for p in pending) and server._finished_recv_count == 3
    await _close(client, listener)


async def test_a_cancelled_receive_does_not_count():
    listener, client, server = await _both()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(server.recv(bytearray(1)), 0.05)
    task = asyncio.create_task(server.recv(bytearray(1)))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server._finished_recv_count == 0
    into = bytearray(2)
    await client.send(b"ok")
    await server.recv(into)
    assert into == b"ok" and server._finished_recv_count == 1
    await _close(client, server, listener)


async def test_tasks_of_it_are_waited_for():
    """ensure_future() makes a task, as of a coroutine: asyncio.wait() takes no coroutines."""
    listener, client, server = await _both()
    into = bytearray(3)
    receiving = asyncio.ensure_future(server.recv(into))
    sending = asyncio.ensure_future(client.send(b"abc"))
    assert isinstance(receiving, asyncio.Task) and not asyncio.isfuture(server.recv(bytearray(3)))
    done, pending = await asyncio.wait([receiving, sending], timeout=10)
    assert done == {receiving, sending} and not pending and into == b"abc"
    await _close(client, server, listener)


@pytest.mark.parametrize("room", [8, 100])
async def test_a_receive_cancelled_as_its_message_came_loses_none(room):
    """Not a short one either, whose error nobody was told."""
    listener, client, server = await _both()
    for _ in range(20):
        task = asyncio.create_task(server.recv(bytearray(room)))
        await asyncio.sleep(0)
        await client.send(b"12345678")
        for _ in range(50):
            ucp.progress()
        task.cancel()
        with contextlib.suppress(ucp.exceptions.UCXMsgTruncated, asyncio.CancelledError):
            await task
            continue  # it came first
        into = bytearray(8)
        await asyncio.wait_for(server.recv(into), 10)
        assert into == b"12345678"
    with pytest.raises(ucp.exceptions.UCXMsgTruncated):
        receiving = asyncio.create_task(server.recv(bytearray(room + 1)))
        await client.send(bytes(room))
        await receiving
    await _close(client, server, listener)


async def _send_large(endpoint, sizes, chance):
    for i, size in enumerate(sizes):
        await endpoint.send(bytes([i]) * size)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 0.002)


async def _receive_large(endpoint, sizes, chance):
    """How many receives were cancelled."""
    cancelled = 0
    for i, size in enumerate(sizes):
        into = bytearray(size)
        _, times = await received_at_last(lambda into=into: endpoint.recv(into), chance)
        assert into == bytes([i]) * size
        cancelled += times
    return cancelled


async def test_receives_cancelled_while_large_messages_come_keep_the_order():
    """The next receive gets the message that was on its way, not the one behind it, for which it may have no room."""
    listener, client, server = await _both()
    chance = random.Random(3)
    cancelled = 0
    for _ in range(40):
        jobs = []
        for sender, receiver in ((client, server), (server, client)):
            sizes = [chance.choice([100_000, 300_000]) for _ in range(20)]
            jobs += [_send_large(sender, sizes, chance), _receive_large(receiver, sizes, chance)]
        results = await asyncio.wait_for(asyncio.gather(*jobs), 60)
        cancelled += sum(n or 0 for n in results)
    assert cancelled > 100
    await _close(client, server, listener)


async def test_nothing_is_kept():
    """Buffers and endpoints are free once their operations have ended."""
    listener, client, server = await _both()
    data, into = bytearray(8), bytearray(8)
    for _ in range(100):
        await client.send(data)
        await server.recv(into)
    for failing in (lambda: server.recv(bytearray(9)), lambda: server.recv(bytearray(7))):
        await client.send(data)
        with pytest.raises((ucp.exceptions.UCXMsgTruncated, ucp.exceptions.UCXError)):
            await failing()

    def references():
        return [sys.getrefcount(thing) for thing in (data, into, client, server)]

    before = references()  # one more where the last await slept: its task remembers what woke it
    for _ in range(100):
        await client.send(data)
        await server.recv(into)
    assert all(n <= at_first + 1 for n, at_first in zip(references(), before, strict=True))
    data.append(1)  # not exported any more
    into.append(1)
    waiting = server.recv(bytearray(1))
    await client.close()
    with pytest.raises(ucp.exceptions.UCXCanceled):
        await waiting
    await _close(server, listener)  # that they are free is checked by reset(), after each test


@pytest.mark.parametrize("way", ["await", "gather", "result", "forget"])
async def test_who_received_the_last_message_goes_on_first(way):
    """A peer's close closes the endpoint after the program has learned of the last message, also if that was posted
    long before it is looked at, as by who sends a message first."""
    listener, client, server = await _both()
    into = bytearray(1)
    receiving = server.recv(into)
    await client.send(b"x")
    await client.close()
    async with asyncio.timeout(10):
        while not server._peer_closes:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    assert server._ep is not None
    if way == "await":
        assert await receiving is True
    elif way == "gather":
        assert await asyncio.gather(receiving) == [True]
    elif way == "result":
        assert receiving.result() is True
    assert way == "forget" or isinstance(server.ucx_info(), str)
    assert into == b"x"
    del receiving
    async with asyncio.timeout(10):
        while server._ep is not None:
            await asyncio.sleep(0)
    server.close_after_n_recv(1)
    await _close(listener)


async def test_reply_to_a_peer_that_closes():
    """A large message ends after the peer's close was heard, perhaps while another task looks for its own."""
    size = 4 << 20
    for i in range(30):
        listener, client, server = await _both()
        other_listener, other, other_server = await _both()
        alive = []

        async def receive(server=server, alive=alive):
            await server.recv(bytearray(size))
            alive.append(server._ep is not None)

        tasks = [asyncio.create_task(receive()), asyncio.create_task(other.recv(bytearray(1)))]
        await asyncio.sleep(0)
        sending = asyncio.create_task(client.send(bytearray(size)))
        await asyncio.sleep(0 if i % 2 else 0.001)
        await client.close()
        await asyncio.gather(sending, return_exceptions=True)
        await other_server.send(b"x")
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        assert alive in ([True], [])
        await _close(other, other_server, server, listener, other_listener)
