"""Remote memory, notifications, plans, worker addresses, objects, in both twins. TIMEOUT: 240 SANITIZED"""

import asyncio
import copy
import gc
import pickle
import threading

import numpy as np
import pytest

import hawser
import hawser.sync


@pytest.fixture(params=["sysv,tcp,self", "tcp,self"], ids=["shm", "tcp"])
def context(request):
    features = ["tag", "stream", "am", "rma", "atomic"]
    with hawser.Context(features, config={"TLS": request.param}) as context:
        yield context
        gc.collect()


@pytest.fixture(params=["alloc", "register"])
def memory(request, context):
    made = context.mem_alloc(100_000) if request.param == "alloc" else context.mem_register(np.zeros(100_000, "u1"))
    yield made
    gc.collect()
    made.close()


async def test_put_and_get(pair, memory):
    client, server = pair
    key = client.rkey_unpack(memory.rkey_pack())
    assert key.length == memory.length == len(memory) >= 100_000 and key.base == memory.address
    assert key.kind == hawser.Memory.HOST
    out = np.random.default_rng(1).integers(0, 256, 50_000, dtype=np.uint8)
    await key.put(out, 1000)
    await client.flush()
    assert bytes(memory.buffer[1000:51_000]) == out.tobytes()
    into = np.zeros_like(out)
    await key.get(into, 1000)
    assert (into == out).all()
    with pytest.raises(hawser.InvalidError):
        await key.put(out, key.length - 10)
    client.fence()
    client.worker.fence()
    assert key.compare(key) == 0
    key.close()
    key.close()
    with pytest.raises(hawser.InvalidError):
        client.rkey_unpack(b"nonsense")


@pytest.mark.parametrize("context", ["sysv,tcp,self"], indirect=True)
async def test_others_run_during_a_long_copy(context, pair):
    """Of memory that is shared with the peer, which is copied here."""
    client, _ = pair
    memory = context.mem_alloc(200 << 20)
    key = client.rkey_unpack(memory.rkey_pack())
    large = bytearray(200 << 20)
    turns = 0

    async def count():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(count())
    for move in (key.put, key.get):
        turns = 0
        await move(large)
        assert turns >= 10
    moving = key.put(large)
    assert not moving.done() and moving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await moving
    others.cancel()
    key.close()
    memory.close()


async def test_atomics(pair, memory):
    client, _ = pair
    key = client.rkey_unpack(memory.rkey_pack())
    number = memory.buffer[:8].cast("Q")
    number[0] = 40
    assert await key.atomic("add", 2) == 40
    assert await key.atomic("cswap", 7, compare=42) == 42
    assert await key.atomic("cswap", 8, compare=42) == 7
    assert await key.atomic("or", 8, size=4) == 7
    await key.atomic("xor", 1, fetch=False)
    await client.flush()
    assert number[0] == 14
    assert await key.atomic("swap", 1) == 14
    with pytest.raises(hawser.InvalidError):
        await key.atomic("add", 1, 3)
    with pytest.raises(ValueError, match="action"):
        key.atomic("divide", 1)
    del number


async def test_notifications(pair, memory):
    client, server = pair
    key = client.rkey_unpack(memory.rkey_pack())
    first = server.recv_notify()
    await key.put_notify(b"told", 5, 10)
    assert await first == (5, 4)
    assert memory.buffer[10:14] == b"told"
    for i in range(10):
        await key.put_notify(b"", i)
    assert [await server.recv_notify() for _ in range(10)] == [(i, 0) for i in range(10)]
    waiting = server.recv_notify()
    await client.close()
    with pytest.raises(hawser.PeerClosedError):
        await waiting


async def test_plan(pair, memory):
    client, _ = pair
    key = client.rkey_unpack(memory.rkey_pack())
    out, into = bytearray(b"o" * 3000), bytearray(2000)
    with client.plan([("put", key, 0, out), ("get", key, 50_000, into)]) as plan:
        for i in range(3):
            memory.buffer[50_000:52_000] = bytes([i]) * 2000
            assert await plan.post() == 5000
            assert memory.buffer[:3000] == out and into == bytes([i]) * 2000
        with pytest.raises(BufferError):
            out.clear()
    out.clear()
    with pytest.raises(ValueError):
        client.plan([("move", key, 0, into)])
    with pytest.raises(hawser.InvalidError):
        client.plan([("put", key, key.length, into)])


async def test_numbers_that_do_not_fit(pair, memory, worker, context):
    """They are refused, and do not stand for others modulo 2 to the 64th or the 32nd."""
    client, server = pair
    key, out = client.rkey_unpack(memory.rkey_pack()), bytearray(8)
    for wrong in (-key.base - 1, 1 << 64):
        for call in (key.put, key.get):
            with pytest.raises(OverflowError):
                call(out, wrong)
        with pytest.raises(OverflowError):
            key.put_notify(out, 1, wrong)
        with pytest.raises(OverflowError):
            key.atomic("add", 1, wrong)
        with pytest.raises(OverflowError):
            client.plan([("put", key, wrong, out)])
    for wrong in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            key.put_notify(out, wrong)
        with pytest.raises(OverflowError):
            key.atomic("add", 1, size=wrong)
        with pytest.raises(OverflowError):
            context.mem_alloc(wrong)
        with pytest.raises(OverflowError):
            memory.advise(wrong)
        for call in (server.probe, server.take, server.recv_multi, worker.probe):
            with pytest.raises(OverflowError):
                call(wrong)
            with pytest.raises(OverflowError):
                call(1, wrong)
        with pytest.raises(OverflowError):
            client.send_multi([out], wrong)
        with pytest.raises(OverflowError):
            client.send_multi([out], coalesce=wrong)
        with pytest.raises(OverflowError):
            await server.recv(tag=wrong)
        with pytest.raises(OverflowError):
            hawser.Worker(context, spares=wrong)
    with pytest.raises(OverflowError):
        key.atomic("add", 1, size=(1 << 32) + 8)
    with pytest.raises(OverflowError):
        hawser.Worker(context, spin=-1)
    with pytest.raises(OverflowError):
        hawser.connect("127.0.0.1", 1, worker=worker, close_timeout=-1)


async def test_views(pair, memory):
    client, _ = pair
    key = client.rkey_unpack(memory.rkey_pack())
    if not key.direct:
        with pytest.raises(hawser.UnreachableError):
            key.view()
        return
    there = key.view(100, 5)
    there[:] = b"hello"
    assert memory.buffer[100:105] == b"hello"
    with pytest.raises(hawser.InvalidError):
        key.view(key.length - 1, 2)
    with pytest.raises(BufferError):
        key.close()
    del there
    gc.collect()
    key.close()


def test_views_keep_memory(context):
    memory = context.mem_alloc(1000)
    view = memory.buffer
    with pytest.raises(BufferError):
        memory.close()
    del memory
    gc.collect()
    view[999] = 1
    assert view[999] == 1
    del view
    with hawser.Context() as plain, pytest.raises(hawser.HawserError):
        plain.mem_register(bytearray())


def test_views_of_a_closed_context(context):
    plain = hawser.Context(["rma"])
    memory = plain.mem_alloc(1000)
    view = memory.buffer
    with pytest.raises(BufferError, match="views of memory"):
        plain.close()
    view[999] = 1
    del view
    plain.close()
    with pytest.raises(ValueError, match="closed"):
        _ = memory.buffer
    memory.close()


async def test_views_of_a_closed_endpoint(pair, memory):
    client, _ = pair
    key = client.rkey_unpack(memory.rkey_pack())
    if not key.direct:
        pytest.skip("this memory is not mapped: there are no views of it")
    view = key.view(0, 8)
    for holder in (client, client.worker, client.worker.context):
        with pytest.raises(BufferError, match="views of memory"):
            holder.close()
    with pytest.raises(BufferError, match="views of memory"):
        client.abort()
    view[:] = bytes(8)
    assert client.connected
    del view
    await client.close()
    with pytest.raises(hawser.HawserError):
        key.view(0, 8)


async def test_plan_closed_while_it_goes_on(context):
    """What was posted goes on, and holds its buffers."""
    memory = context.mem_register(bytearray(8 << 20))
    async with hawser.Worker(context) as here, hawser.Worker(context) as there:
        async with (
            hawser.listen(host="127.0.0.1", worker=there) as listener,
            hawser.connect("127.0.0.1", listener.port, worker=here) as client,
            await listener.accept(),
        ):
            key = client.rkey_unpack(memory.rkey_pack())
            for _ in range(5):
                out = bytearray(b"p" * (8 << 20))
                plan = client.plan([("put", key, 0, out)])
                posted = plan.post()
                plan.close()
                if not posted.done():
                    with pytest.raises(BufferError):
                        out.clear()
                with pytest.raises(hawser.HawserError):
                    plan.post()
                assert await posted == 8 << 20
                assert bytes(memory.buffer[-3:]) == b"ppp"
                out.clear()
                memory.buffer[-3:] = b"..."
            gone = client.plan([("put", key, 0, bytes(8 << 20))])
            posted = gone.post()
            posted.cancel()
            gone.close()
            del gone, posted
            gc.collect()
    memory.close()


async def test_backlog_of_peers_by_address(context):
    """Peers that nobody accepts are turned away from a number on."""
    async with hawser.Worker(context, backlog=2) as here, hawser.Worker(context) as there:
        here._watch()
        address = here.address()
        ends = [await hawser.connect_address(address, worker=there, timeout=20) for _ in range(3)]
        for _ in range(2000):
            if not ends[2].connected:
                break
            await asyncio.sleep(0.01)
        assert [end.connected for end in ends] == [True, True, False]
        accepted = [await here.accept() for _ in range(2)]
        ends.append(await hawser.connect_address(address, worker=there, timeout=20))
        accepted.append(await here.accept())
        for end in ends + accepted:
            await end.close()


async def test_all_dial_each_other(context):
    """By address, at once, and themselves, too."""
    workers = [hawser.Worker(context) for _ in range(4)]
    addresses = [worker.address() for worker in workers]
    async with asyncio.timeout(60):
        accepting = [worker.accept() for worker in workers for _ in addresses]
        dials = [hawser.connect_address(address, worker=worker) for worker in workers for address in addresses]

        async def over(dial):
            return await dial

        ends, accepted = await asyncio.gather(asyncio.gather(*map(over, dials)), asyncio.gather(*map(over, accepting)))
        await asyncio.gather(*(end.send(b"%d" % i, 1) for i, end in enumerate(ends)))
        assert sorted([int(await end.recv(tag=1)) for end in accepted]) == list(range(len(ends)))
        for worker in workers:
            await worker.close()


async def test_accept_ends_with_the_worker(context):
    worker = hawser.Worker(context)
    waiting = worker.accept()
    await worker.close()
    for operation in (waiting, worker.accept()):
        with pytest.raises(hawser.ClosingError):
            await operation


@pytest.mark.parametrize("hello", [True, False])
async def test_addresses(context, hello):
    with context.mem_alloc(100) as memory:
        async with hawser.Worker(context) as here, hawser.Worker(context) as there:
            here._watch()
            blob = here.address({7: memory.rkey_pack(), 9: b"else"}, hello=hello)
            info = hawser.address_info(blob)
            assert (info.hello, info.items) == (hello, 2) and info.text
            assert info.worker == hawser.address_info(here.address(hello=hello)).worker
            items = hawser.address_items(blob)
            assert items[9] == b"else"
            client = await hawser.connect_address(blob, worker=there, lazy=not hello)
            await client.send(b"by address", 5)
            if hello:
                server = await here.accept()
                assert await server.recv(tag=5) == b"by address"
                key = client.rkey_unpack(items[7])
                await key.put(b"remote")
                await client.flush()
                assert memory.buffer[:6] == b"remote"
                key.close()
                await asyncio.gather(client.close(), server.close())
            else:
                into = bytearray(10)
                assert await here.recv(into, 5) == 10
                assert into == b"by address"
                await client.close()
        with pytest.raises(hawser.InvalidError):
            hawser.address_info(blob[:-1])
        gc.collect()


OBJECTS = [
    None,
    {"a": [1, 2.5, "three"], "b": b"bytes"},
    [np.arange(100_000), np.arange(10.0), np.zeros(0), bytearray(b"x" * 100_000)],
    np.arange(1000)[::2],
    np.asfortranarray(np.arange(600_000.0).reshape(600, 1000)),
]


@pytest.mark.parametrize("i", range(len(OBJECTS)))
async def test_objects(pair, i):
    client, server = pair
    obj = OBJECTS[i]
    sending = client.send_obj(obj, tag=3)
    got = await server.recv_obj(tag=3)
    await sending
    assert type(got) is type(obj)
    np.testing.assert_equal(got, obj)
    if isinstance(got, np.ndarray):
        assert got.flags.writeable


async def test_objects_into_memory_of_choice(pair):
    client, server = pair
    made = []

    def allocate(n):
        made.append(np.empty(n, "u1"))
        return made[-1]

    out = np.arange(1_000_000)
    sending = client.send_obj(out)
    got = await server.recv_obj(allocator=allocate)
    await sending
    assert (got == out).all() and len(made) == 1 and np.shares_memory(got, made[0])


async def test_nothing_of_the_library_is_copied(context, pair):
    """What a copy closes, as it goes, would be the original's."""
    client, server = pair
    memory = context.mem_alloc(4096)
    key = client.rkey_unpack(memory.rkey_pack())
    await client.send(b"abc", 5)
    while (message := server.take(5)) is None:
        await asyncio.sleep(0)
    async with hawser.listen(host="127.0.0.1", worker=client.worker) as listener:
        plan = client.plan([("put", key, 0, b"x")])
        for thing in (context, client.worker, client, listener, memory, key, plan, message):
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError):
                    make(thing)
        gc.collect()
        memory.buffer[0] = 1
        assert await message.recv(bytearray(3)) == 3
        plan.close()
        async with hawser.connect("127.0.0.1", listener.port, worker=client.worker):
            await (await listener.accept()).close()
    key.close()
    memory.close()


async def test_objects_that_cannot_be_pickled(pair):
    client, _ = pair
    with pytest.raises((pickle.PicklingError, AttributeError)):
        client.send_obj(lambda: None)


def test_sync_twin(context):
    """The same through hawser.sync, the other side in a thread."""
    memory = context.mem_alloc(1000)
    told = []

    with hawser.Worker(context) as there, hawser.Worker(context) as here:
        with hawser.sync.listen(host="127.0.0.1", worker=there) as listener:

            def serve():
                with listener.accept(30) as ep:
                    ep.send_obj({"key": memory.rkey_pack(), "data": np.arange(50_000)})
                    told.append(ep.recv_notify(30))
                    told.append(ep.recv_multi(5).copy())
                    ep.send_multi([b"", b"two"], 6)
                    ep.recv(tag=7)

            thread = threading.Thread(target=serve)
            thread.start()
            with hawser.sync.connect("127.0.0.1", listener.port, worker=here) as ep:
                got = ep.recv_obj()
                assert (got["data"] == np.arange(50_000)).all()
                into = bytearray(3)
                with ep.rkey_unpack(got["key"]) as key:
                    key.put(b"abc", 1)
                    ep.fence()
                    ep.flush()
                    key.get(into, 1)
                    assert into == b"abc"
                    assert key.atomic("add", 3, 8) == 0
                    with ep.plan([("get", key, 1, into)]) as plan:
                        assert plan.post() == 3
                    key.put_notify(b"x", 77)
                ep.send_multi([b"one", b""], 5)
                assert ep.recv_multi(6).copy() == [b"", b"two"]
                assert ep.describe()
                ep.send(b"end", 7)
            thread.join(30)
            assert not thread.is_alive()
    assert told == [(77, 1), [b"one", b""]]
    memory.close()


def test_sync_by_address(context):
    done = threading.Event()
    with hawser.Worker(context) as here, hawser.Worker(context) as there:
        address = here.address()

        def serve():
            ep = here.accept().wait(30)
            with hawser.sync.Endpoint(ep) as served:
                assert served.recv(tag=1) == b"hello"
                done.set()

        thread = threading.Thread(target=serve)
        thread.start()
        with hawser.sync.connect_address(address, worker=there) as client:
            client.send(b"hello", 1)
            while not done.is_set():
                there.progress()
        thread.join(30)
