"""The operation as awaitable, future and coroutine; cancelling; lifetimes of buffers. TIMEOUT: 300 SANITIZED"""

import asyncio
import gc
import pickle
import random
import sys
import time
import weakref

import pytest
from echo_support import let_go

import hawser
from hawser import _constants


async def test_ways_to_wait(pair):
    client, server = pair
    into = bytearray(1)

    async def get(wait):
        receive = server.recv(into, 1)
        waiting = asyncio.create_task(wait(receive))
        await asyncio.sleep(0.005)
        await client.send(b"x", 1)
        return await waiting

    async def plain(op):
        return await op

    async def gathered(op):
        return (await asyncio.gather(op))[0]

    async def limited(op):
        return await asyncio.wait_for(op, 10)

    async def shielded(op):
        return await asyncio.shield(op)

    async def waited(op):
        done, _ = await asyncio.wait([asyncio.create_task(op)])
        return done.pop().result()

    async def completed(op):
        for first in asyncio.as_completed([op]):
            return await first

    async def grouped(op):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(op)
        return task.result()

    for way in (plain, gathered, limited, shielded, waited, completed, grouped):
        assert await get(way) == 1
    task = asyncio.create_task(server.recv(into, 2))
    await client.send(b"y", 2)
    assert await task == 1


async def test_done_before_await(pair):
    client, server = pair
    await client.send(b"x", 1)
    while server.probe(1) is None:
        await asyncio.sleep(0)
    receive = server.recv(bytearray(1), 1)
    assert receive.done() and receive.result() == 1
    called = []
    receive.add_done_callback(called.append)
    assert called == []
    await asyncio.sleep(0)
    assert called == [receive]
    assert await receive == 1
    assert await receive == 1


async def test_callbacks(pair):
    client, server = pair
    receive = server.recv(bytearray(1), 1)
    with pytest.raises(asyncio.InvalidStateError):
        receive.result()
    called = []
    first, second, third = (lambda op, n=n: called.append(n) for n in range(3))
    for callback in (first, second, third):
        receive.add_done_callback(callback)
    assert receive.remove_done_callback(first) == 1
    assert receive.remove_done_callback(first) == 0
    await client.send(b"x", 1)
    await receive
    await asyncio.sleep(0.01)
    assert called == [1, 2]
    assert receive.get_loop() is asyncio.get_running_loop()


async def test_callbacks_are_given_the_operation(pair):
    """Also while tasks wait for others, which are woken without it."""
    client, server = pair
    receives = [server.recv(bytearray(1), tag) for tag in range(3)]
    called, computed = [], []
    receives[0].add_done_callback(called.append)
    victim = asyncio.create_task(asyncio.sleep(60))
    receives[1].add_done_callback(victim.cancel)  # a method of a task, as what wakes one

    async def wait(receive):
        computed.append(await receive)

    waiting = [asyncio.create_task(wait(r)) for r in receives]
    await asyncio.sleep(0.01)
    for tag in range(3):
        await client.send(b"x", tag)
    await asyncio.gather(*waiting)
    assert called == receives[:1]
    assert computed == [1, 1, 1]
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await victim
    assert cancelled.value.args == (receives[1],)


async def test_cancel_keeps_the_buffer(pair):
    client, server = pair

    class Owner(bytearray):
        pass

    into = Owner(4)
    task = asyncio.ensure_future(server.recv(into, 1))
    waiting = asyncio.create_task(asyncio.wait_for(task, 10))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert task.cancelled()
    await asyncio.sleep(0.01)
    into.append(0)  # nothing exports it any more
    # The message that comes later is not swallowed by the cancelled receive.
    await client.send(b"late", 1)
    assert await server.recv(tag=1) == b"late"


async def test_buffer_is_held_until_the_end(pair):
    client, server = pair
    out = bytearray(1_000_000)
    sending = client.send(out, 1, sync=True)
    sending.cancel()
    del sending
    await asyncio.sleep(0.01)
    with pytest.raises(BufferError):
        out.append(0)
    assert await server.recv(tag=1) == bytes(1_000_000)
    await let_go(out, asyncio.sleep)


async def by_active_message(endpoint):
    return (await endpoint.recv_am())[1]


async def by_stream(endpoint):
    data = bytearray(4)
    await endpoint.stream_recv(data)
    return data


async def by_tag(endpoint):
    data = bytearray(100_000)
    length = await endpoint.recv(data)
    return data[:length]


async def by_tag_of_any_size(endpoint):
    return await endpoint.recv()


async def by_worker(endpoint):
    data = bytearray(8)
    length = await endpoint.worker.recv(data)
    return data[:length]


async def by_list(endpoint):
    segments = await endpoint.recv_multi()
    parts = [bytearray(n) for n in segments.lengths]
    await segments.fetch(parts)
    return parts[0]


async def by_object(endpoint):
    return (await endpoint.recv_obj()).to_bytes(4, "little")


def small(endpoint, number):
    return endpoint.send(number.to_bytes(4, "little"))


def large(endpoint, number):
    return endpoint.send(number.to_bytes(4, "little") + bytes(99_996))


def list_of_two(endpoint, number):
    return endpoint.send_multi([number.to_bytes(4, "little"), bytes(4000 if number % 7 else 200_000)])


def by(name):
    return lambda endpoint, number: getattr(endpoint, name)(number.to_bytes(4, "little"))


# How it is sent and received, by how many tasks at most, and whether it comes in order: what is being moved when its
# receive is cancelled comes behind what was received meanwhile.
WAYS = {
    "am": (by("send_am"), by_active_message, 4, True),
    "stream": (by("stream_send"), by_stream, 1, True),
    "tag": (small, by_tag, 4, True),
    "tag-any-size": (small, by_tag_of_any_size, 4, True),
    "worker": (small, by_worker, 4, True),
    "rndv": (large, by_tag, 4, False),
    "rndv-any-size": (large, by_tag_of_any_size, 4, False),
    "multi": (list_of_two, by_list, 4, False),
    "object": (lambda endpoint, number: endpoint.send_obj(number), by_object, 4, True),
}


@pytest.mark.parametrize(("way", "tasks"), [(way, n) for way in WAYS for n in (1, 4) if n <= WAYS[way][2]])
async def test_what_an_interrupted_task_did_not_take_is_the_next_ones(pair, way, tasks):
    """Whatever comes in the very turn in which the time is up."""
    client, server = pair
    send, receive, _, in_order = WAYS[way]
    count, got, late = 1000 if in_order else 300, [], 0
    # uvloop's timers have milliseconds: below them all tasks give up in each turn, and hand what came to each other.
    unit = 0.003 if type(asyncio.get_running_loop()).__module__ == "uvloop" else 0.0005

    async def receive_all():
        nonlocal late
        while len(got) < count:
            try:
                async with asyncio.timeout(random.random() * unit):
                    got.append(int.from_bytes(bytes(await receive(server))[:4], "little"))
            except TimeoutError:
                late += 1

    receiving = [asyncio.create_task(receive_all()) for _ in range(tasks)]
    for number in range(count):
        await send(client, number)
        if number % 3 == 0:
            await asyncio.sleep(random.random() * unit)
    await asyncio.wait_for(asyncio.gather(*receiving), 30)
    assert (got if in_order and tasks == 1 else sorted(got)) == list(range(count))
    assert late > 20


async def test_an_interrupted_task_and_one_that_waits(pair):
    client, server = pair
    first, second = (asyncio.create_task(by_active_message(server)) for _ in range(2))
    await asyncio.sleep(0.01)
    server._ams[0].put((b"", b"thing"))  # told to the first, which has not run yet
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await second == b"thing"


async def test_those_that_gave_up_waiting_are_forgotten(pair):
    _, server = pair
    waiting = asyncio.create_task(by_active_message(server))
    await asyncio.sleep(0)
    for _ in range(1000):
        server.recv_am().cancel()
    assert len(server._ams[0].waiting) < 100
    waiting.cancel()


async def test_a_message_that_nobody_goes_on_with_is_the_next_ones(pair):
    """recv() without a buffer takes the message first."""
    client, server = pair

    def taking():
        return hawser._core.take(server.worker, server.id, 1, 2**64 - 1, None)

    interrupted = taking()
    waiting = asyncio.create_task(interrupted)
    await asyncio.sleep(0.01)
    dropped = taking()
    for data in b"x", b"y":
        await client.send(data, 1)
    while not dropped.done():
        server.worker.progress()
    assert interrupted.done() and not waiting.done()
    id = dropped.source
    assert hawser._core.kind(id) == _constants.Kind.MESSAGE
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.sleep(0)  # whoever makes progress tells them
    del interrupted, dropped, waiting
    with pytest.raises(hawser.StaleError):
        hawser._core.kind(id)
    assert [await server.recv(tag=1) for _ in range(2)] == [b"x", b"y"]


async def test_put_back(pair):
    client, server = pair
    for data in b"x", b"y":
        await client.send(data, 1)
        await client.send_multi([data, bytes(3)], 1)
    while (message := server.take(1)) is None:
        server.worker.progress()
    message.put_back()
    message.put_back()  # it is gone: nothing
    assert [await server.recv(tag=1) for _ in range(2)] == [b"x", b"y"]
    segments = await server.recv_multi(1)
    segments.put_back()
    with pytest.raises(ValueError, match="put back"):
        segments.put_back()
    for data in b"x", b"y":
        segments = await server.recv_multi(1)
        assert segments.copy() == [data, bytes(3)]


async def test_wait_for_does_not_lose_the_loop(pair):
    client, server = pair
    for i in range(50):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(server.recv(bytearray(1), 1), 0.001)
    await client.send(b"x", 1)
    assert await asyncio.wait_for(server.recv(bytearray(1), 1), 5) == 1


async def test_no_cycles(pair):
    client, server = pair
    into = bytearray(1)
    gc.collect()
    gc.disable()
    try:

        async def exchange():
            receive = server.recv(into, 1)
            task = asyncio.ensure_future(asyncio.wait_for(receive, 5))
            await asyncio.sleep(0)
            await client.send(b"x", 1)
            await task
            return weakref.ref(task)

        gone = [await exchange() for _ in range(5)]
        await asyncio.sleep(0)
        assert [ref() for ref in gone] == [None] * 5
    finally:
        gc.enable()


async def test_references(pair):
    client, server = pair
    into, out = bytearray(8), b"12345678"

    async def exchange():
        await client.send(out, 1)
        await server.recv(into, 1)

    for _ in range(300):
        await exchange()
    before = sys.getrefcount(into), sys.getrefcount(out), sys.getrefcount(client), sys.getrefcount(server)
    for _ in range(1000):
        await exchange()
    assert before == (sys.getrefcount(into), sys.getrefcount(out), sys.getrefcount(client), sys.getrefcount(server))
    into.append(0)


async def test_busy_awaits_leave_the_loop_its_turn(pair):
    client, server = pair
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.001)
            ticks += 1

    task = asyncio.create_task(tick())
    end = time.process_time() + 0.3  # of its own: other processes may have most of the machine
    into = bytearray(1)
    while time.process_time() < end:
        await client.send(b"x", 1)
        await server.recv(into, 1)
    task.cancel()
    assert ticks > 20


async def test_error_of_a_closed_endpoint(pair):
    client, server = pair
    receive = server.recv(bytearray(1), 1)
    await client.close()
    with pytest.raises(hawser.PeerClosedError):
        await receive
    with pytest.raises(hawser.HawserError):
        await client.send(b"")
    assert client.closed and not server.connected


def test_await_outside_a_loop():
    with hawser.Context() as context, hawser.Worker(context) as worker:
        receive = worker.recv(bytearray(1), 1)
        with pytest.raises(RuntimeError, match="event loop"):
            receive.send(None)
        with pytest.raises(TimeoutError):
            receive.wait(0.01)
        assert receive.cancel()


async def test_turns_are_kept(pair):
    """Who was woken before a message was sent runs before those who wait for its answer."""
    client, server = pair
    tags = range(8)
    for _ in range(30):
        order, woken = [], asyncio.Event()

        async def bystander(order=order, woken=woken):
            await woken.wait()
            order.append("bystander")

        async def serve(tag, order=order, woken=woken):
            await server.recv(tag=tag)
            if tag == 4:
                woken.set()
            await server.send(b"x", tag)
            await server.recv(tag=tag)
            if tag == 4:
                order.append("answered")

        async def ask(tag):
            for _ in range(tag):
                await asyncio.sleep(0)
            await client.send(b"x", tag)
            await client.recv(tag=tag)
            await client.send(b"x", tag)

        await asyncio.gather(bystander(), *map(serve, tags), *map(ask, tags))
        assert order == ["bystander", "answered"]


async def test_a_fetch_that_was_interrupted_gives_its_message_back(pair):
    """Also where the data was here at once: one await in many gives the loop its turn all the same."""
    client, server = pair
    for i in range(100000):
        await client.send_multi([b"%05d" % i, b"xx"], 6)
        segments = await server.recv_multi(6)
        fetch = segments.fetch([bytearray(n) for n in segments.lengths])
        try:
            turn = fetch.send(None)
        except StopIteration:
            continue
        assert turn is None
        with pytest.raises(asyncio.CancelledError):
            fetch.throw(asyncio.CancelledError())
        segments = await asyncio.wait_for(server.recv_multi(6), 30)
        parts = [bytearray(n) for n in segments.lengths]
        await segments.fetch(parts)
        assert parts == [b"%05d" % i, b"xx"]
        break
    else:
        pytest.fail("the loop never got its turn")


async def test_an_object_without_memory_comes_again(pair):
    client, server = pair
    data = bytes(100000)
    sending = client.send_obj(pickle.PickleBuffer(data), 3)

    def none(n):
        raise MemoryError

    with pytest.raises(MemoryError):
        await server.recv_obj(3, allocator=none)
    assert bytes(await asyncio.wait_for(server.recv_obj(3), 30)) == data
    await sending


@pytest.mark.parametrize("return_exceptions", [False, True])
async def test_cancelled_gather(pair, return_exceptions):
    client, server = pair
    for posted in (0, 1):  # so many are done before
        receives = [server.recv(bytearray(1), i) for i in range(3)]
        together = asyncio.gather(*receives, return_exceptions=return_exceptions)
        for i in range(posted):
            await client.send(b"x", i)
        await asyncio.sleep(0.05)
        together.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(together, 5)
        assert [r.cancelled() for r in receives] == [i >= posted for i in range(3)]


async def test_gather_of_which_one_is_cancelled(pair):
    _, server = pair
    first, second = server.recv(bytearray(1), 1), server.recv(bytearray(1), 2)
    together = asyncio.gather(first, second)
    first.cancel("why")
    with pytest.raises(asyncio.CancelledError, match="why"):
        await asyncio.wait_for(together, 5)
    with pytest.raises(asyncio.CancelledError, match="why"):
        first.result()
    both = asyncio.gather(server.recv(bytearray(1), 3), second, return_exceptions=True)
    second.cancel()
    await asyncio.sleep(0)
    both.cancel("all")
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(both, 5)


async def test_gather_within_a_time(pair):
    _, server = pair

    async def together():
        await asyncio.gather(server.recv(bytearray(1), 1), server.recv(bytearray(1), 2))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(together(), 0.05)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await together()


async def test_who_is_called_at_the_end_and_who_awaits(pair):
    client, server = pair
    called = []
    receiving = server.recv(bytearray(8), 1)
    receiving._on_end(called.append)
    await asyncio.gather(receiving, client.send(b"x", 1))
    assert called == [receiving]
