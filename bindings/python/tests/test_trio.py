"""The same calls under Trio: `import hawser` finds out which library runs the task. SANITIZED"""

import asyncio
import collections
import gc
import os
import signal
import threading
import time
import weakref

import pytest
import trio
from conftest import other_process, run_script
from echo_support import converse, echo, let_go, run_in_threads

import hawser


@pytest.fixture
def event_loop_policy():
    return asyncio.DefaultEventLoopPolicy()


def under_trio(test):
    """The test is a coroutine function of a connected pair, on a worker of its own."""

    def run(context):
        async def main():
            async with hawser.Worker(context, am_ids=range(8)) as worker:
                async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
                    async with (
                        hawser.connect("127.0.0.1", listener.port, worker=worker) as client,
                        await listener.accept() as server,
                    ):
                        with trio.fail_after(60):
                            await test(client, server)
            assert worker.closed

        trio.run(main)

    return run


@under_trio
async def test_ping_pong(client, server):
    into = bytearray(8)
    for i in range(2000):
        await client.send(b"%08d" % i, 1)
        assert await server.recv(into, 1) == 8 and into == b"%08d" % i


@under_trio
async def test_every_kind_of_message(client, server):
    got = {}

    async def receive():
        got["tag"] = await server.recv(tag=1)
        into = bytearray(3)
        got["stream"] = await server.stream_recv(into), bytes(into)
        header, data = await server.recv_am(3)
        got["am"] = header, bytes(data)
        got["obj"] = await server.recv_obj(4)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await trio.sleep(0.02)
        await client.send(bytes(3_000_000), 1)
        await client.stream_send(b"abc")
        await client.send_am(b"data", 3, b"head")
        await client.send_obj({"a": [1, 2]}, 4)
        await client.flush()
    assert got == {
        "tag": bytes(3_000_000),
        "stream": (3, b"abc"),
        "am": (b"head", b"data"),
        "obj": {"a": [1, 2]},
    }


@under_trio
async def test_deadline(client, server):
    into = bytearray(4)
    for _ in range(20):
        with trio.move_on_after(0.005) as scope:
            await server.recv(into, 1)
        assert scope.cancelled_caught
    with pytest.raises(hawser.TimedOutError):
        await server.recv(into, 1, timeout=0.01)
    with pytest.raises(TimeoutError):
        await server.recv_am(2, timeout=0.01)
    # What comes later is not swallowed by those receives.
    await client.send(b"late", 1)
    assert await server.recv(into, 1) == 4 and into == b"late"
    # UCX has begun to send it and gives it back only when it is received.
    large = bytearray(4 << 20)
    with pytest.raises(hawser.TimedOutError, match="in use"), trio.fail_after(20):
        await client.send(large, 2, timeout=0.2)
    assert await server.recv(bytearray(4 << 20), 2) == 4 << 20


@under_trio
async def test_what_has_arrived_is_not_lost_by_a_cancel(client, server):
    await client.send(b"here", 1)
    while server.probe(1) is None:
        await trio.sleep(0)
    with trio.CancelScope() as scope:
        scope.cancel()
        into = bytearray(4)
        assert await server.recv(into, 1) == 4
    assert into == b"here"


@under_trio
async def test_a_loop_of_sends_can_be_cancelled(client, server):
    """Its awaits are done at once; the turn of the others comes all the same."""
    with trio.move_on_after(0.05) as scope:
        while True:
            await client.send_am(b"", 0)
    assert scope.cancelled_caught


@under_trio
async def test_busy_awaits_leave_the_others_their_turn(client, server):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await trio.sleep(0.001)
            ticks += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tick)
        end = trio.current_time() + 0.3
        into = bytearray(1)
        while trio.current_time() < end:
            await client.send(b"x", 1)
            await server.recv(into, 1)
        nursery.cancel_scope.cancel()
    assert ticks > 20


@under_trio
async def test_cancel_keeps_the_buffer_until_the_end(client, server):
    out = bytearray(1_000_000)
    with trio.move_on_after(0.02) as scope:
        await client.send(out, 1, sync=True)
    assert scope.cancelled_caught
    with pytest.raises(BufferError):
        out.append(0)
    assert await server.recv(tag=1) == bytes(1_000_000)
    await let_go(out, trio.sleep)


@under_trio
async def test_cancelled_by_the_operation_itself(client, server):
    receive = server.recv(bytearray(1), 1)

    async def wait():
        with pytest.raises(hawser.CanceledError):
            await receive

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.01)
        assert receive.cancel()
    with pytest.raises(hawser.CanceledError):
        await receive


@under_trio
async def test_two_tasks_wait_for_one_operation(client, server):
    receive = server.recv(bytearray(4), 1)
    got = []

    async def wait():
        got.append(await receive)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.sleep(0.01)
        await client.send(b"1234", 1)
    assert got == [4, 4]


@under_trio
async def test_two_nurseries(client, server):
    """Hundreds of receives of two nurseries wait at once; each gets what is its own."""
    got = collections.Counter()

    async def one(tag):
        into = bytearray(8)
        assert await server.recv(into, tag) == 8
        got[int(into)] += int(into) == tag

    async with trio.open_nursery() as first, trio.open_nursery() as second:
        for tag in range(400):
            (first, second)[tag % 2].start_soon(one, tag)
        await trio.sleep(0.01)
        for tag in reversed(range(400)):
            await client.send(b"%08d" % tag, tag)
    assert got == collections.Counter(range(400))


@under_trio
async def test_a_closed_peer(client, server):
    failures = []

    async def wait():
        try:
            await server.recv(bytearray(1), 1)
        except hawser.PeerClosedError as e:
            failures.append(e)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.01)
        await client.close()
    assert len(failures) == 1 and not server.connected


@under_trio
async def test_idle_receives_cost_nothing(client, server):
    async with trio.open_nursery() as nursery:
        for tag in range(1000):
            nursery.start_soon(server.recv, bytearray(1), tag)
        await trio.sleep(0.5)
        before = time.process_time()
        await trio.sleep(1)
        used = time.process_time() - before
        nursery.cancel_scope.cancel()
    assert used < 0.2


@under_trio
async def test_no_cycles(client, server):
    gone = []

    async def one(tag):
        with trio.move_on_after(5):
            assert await server.recv(bytearray(1), tag) == 1
        gone.append(weakref.ref(trio.lowlevel.current_task()))

    gc.collect()
    gc.disable()
    try:
        for tag in range(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one, tag)
                await trio.sleep(0)
                await client.send(b"x", tag)
        await trio.sleep(0)
        assert [ref() for ref in gone] == [None] * 5
    finally:
        gc.enable()


def test_asyncio_and_trio_in_turns(context):
    """One worker, whatever runs the task that waits; what is cancelled by the end of a run too."""
    with hawser.Worker(context) as worker:

        async def asyncio_waits(tag):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(worker.recv(bytearray(1), tag), 0.02)

        async def trio_waits(tag):
            with trio.move_on_after(0.02) as scope:
                await worker.recv(bytearray(1), tag)
            assert scope.cancelled_caught
            trio.lowlevel.spawn_system_task(left_behind)

        async def left_behind():
            await worker.recv(bytearray(1), 100)

        for tag in range(4):
            asyncio.run(asyncio_waits(tag))
            trio.run(trio_waits, tag)


def test_guest_of_asyncio(context):
    """Tasks of both libraries in one thread, Trio as the guest of an asyncio loop."""

    async def main():
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            loop = asyncio.get_running_loop()
            ended = loop.create_future()

            async def guest():
                async with hawser.connect("127.0.0.1", listener.port, worker=worker) as client:
                    for i in range(100):
                        await client.send(b"%d" % i, 1)
                        assert await client.recv(tag=2) == b"%d" % i

            trio.lowlevel.start_guest_run(
                guest, run_sync_soon_threadsafe=loop.call_soon_threadsafe, done_callback=ended.set_result
            )
            async with await listener.accept() as server:
                for _ in range(100):
                    await server.send(await server.recv(tag=1), 2)
                (await asyncio.wait_for(ended, 30)).unwrap()

    asyncio.run(main())


def test_a_run_per_thread(context):
    """Runs in several threads, each with a worker, and an asyncio loop; all talk to one listener."""

    async def serve(ports, done):
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            ports.append(listener.port)
            async with trio.open_nursery() as nursery:
                while not done.is_set():
                    with trio.move_on_after(0.05):
                        nursery.start_soon(echo, await listener.accept())

    def client(number, run=trio.run):
        return lambda port: run(converse, context, port, number)

    run_in_threads(
        lambda ports, done: trio.run(serve, ports, done),
        [client(i) for i in range(3)] + [client(3, lambda call, *args: asyncio.run(call(*args)))],
    )


def test_two_runs_share_a_worker(context):
    """An operation that another thread's progress ends wakes the run that waits for it."""
    with hawser.Worker(context) as worker:
        results = []

        async def waiter(tag):
            results.append(await worker.recv(bytearray(4), tag))

        threads = [threading.Thread(target=trio.run, args=(waiter, tag)) for tag in (1, 2)]
        for thread in threads:
            thread.start()

        async def send():
            async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
                async with hawser.connect("127.0.0.1", listener.port, worker=worker) as ep:
                    server = await listener.accept()
                    for tag in (1, 2):
                        await trio.sleep(0.1)
                        await ep.send(b"1234", tag)
                    for thread in threads:
                        await trio.to_thread.run_sync(thread.join, 20)
                    await server.close()

        trio.run(send)
        assert results == [4, 4]


@pytest.mark.parametrize("progress", ["thread", "thread-polling", "manual"])
def test_modes(context, progress):
    async def main():
        async with (
            hawser.Worker(context, progress=progress) as worker,
            hawser.listen(host="127.0.0.1", worker=worker) as listener,
            hawser.connect("127.0.0.1", listener.port, worker=worker) as client,
        ):
            server = await listener.accept()

            async def receive():
                assert await server.recv(bytearray(3), 1) == 3

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                await trio.sleep(0.05)
                await client.send(b"abc", 1)
            await server.close()

    trio.run(main)


def victim(pipe):
    async def main():
        async with hawser.Worker(hawser.Context()) as worker:
            async with hawser.connect("127.0.0.1", pipe.recv(), worker=worker) as endpoint:
                await endpoint.send(b"here", 1)
                await trio.sleep(1000)

    trio.run(main)


def test_killed_peer():
    async def main():
        with hawser.Context() as context:
            async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
                with other_process(victim) as (pipe, process):
                    pipe.send(listener.port)
                    endpoint = await listener.accept()
                    assert await endpoint.recv(tag=1) == b"here"
                    os.kill(process.pid, signal.SIGKILL)
                    with trio.fail_after(10), pytest.raises(hawser.HawserError) as caught:
                        await endpoint.recv(tag=2)
                    assert caught.value.category == "peer"
                    await endpoint.close()

    trio.run(main)


def test_default_worker_and_the_end_of_the_program():
    code, output = run_script(
        """
import trio, hawser

async def main():
    async with hawser.listen() as listener:
        async with hawser.connect("127.0.0.1", listener.port) as client, await listener.accept() as server:
            await client.send(b"hello", tag=1)
            print(await server.recv(tag=1))
    async with hawser.listen() as listener:

        async def serve():
            async for endpoint in listener:
                async with endpoint:
                    print(await endpoint.recv(tag=1))
                await listener.close()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            async with hawser.connect("127.0.0.1", listener.port) as client:
                await client.send(b"again", tag=1, sync=True)

trio.run(main)
"""
    )
    assert (code, output) == (0, "bytearray(b'hello')\nbytearray(b'again')\n")


def test_end_with_operations_pending():
    code, output = run_script(
        """
import trio, hawser

async def main():
    global kept
    worker = hawser.default_worker()
    kept = [worker.recv(bytearray(10), 5)]
    with trio.move_on_after(0.05):
        await kept[0]
    kept.append(worker.recv(bytearray(10), 6))

trio.run(main)
"""
    )
    assert code == 0, output


def test_interrupt():
    code, output = run_script(
        """
import os, signal, threading, time, trio, hawser
def interrupt():
    global at
    time.sleep(0.3)
    at = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)
context = hawser.Context()
worker = hawser.Worker(context)
async def waiting():
    await worker.recv(bytearray(1), 1)
took = []
for _ in range(3):
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        trio.run(waiting)
    except KeyboardInterrupt:
        took.append(time.monotonic() - at)
    thread.join()
    if took and min(took) < 0.1:
        break
print(min(took) < 0.1 or took)
worker.close_wait()
context.close()
"""
    )
    assert (code, output) == (0, "True\n")
