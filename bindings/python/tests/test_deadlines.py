"""Deadlines that UCX cannot honour: whoever waits goes on in time, the buffer stays in use."""

import asyncio
import gc
import os
import signal
import time
import weakref

import pytest
from conftest import other_process, run_script

import hawser
import hawser.sync

LARGE = 4 << 20


def is_in_use(buffer):
    try:
        buffer.append(0)
    except BufferError:
        return True
    buffer.pop()
    return False


async def await_it(operation):
    return await operation


async def as_a_task(operation):
    return await asyncio.create_task(operation)


async def gathered(operation):
    return await asyncio.gather(operation, asyncio.sleep(0))


async def waited_for(operation):
    return await asyncio.wait_for(operation, 20)


async def blocking(operation):
    return operation.wait(20)


@pytest.mark.parametrize("way", [await_it, as_a_task, gathered, waited_for, blocking])
@pytest.mark.parametrize("many", [1, 5])
async def test_nobody_takes_it(pair, way, many):
    client, server = pair
    buffers = [bytearray(LARGE) for _ in range(many)]
    operations = [client.send(buffer, i, timeout=0.2) for i, buffer in enumerate(buffers)]
    for operation in operations:
        start = time.monotonic()
        with pytest.raises(hawser.TimedOutError, match="in use"):
            await way(operation)
        assert time.monotonic() - start < 5
        assert operation.done() and not operation.cancelled() and "TIMED_OUT" in repr(operation)
        assert isinstance(operation.exception(), hawser.TimedOutError)
    assert all(is_in_use(buffer) for buffer in buffers)
    for i in range(many):
        assert await server.recv(bytearray(LARGE), i, timeout=20) == LARGE
    await client.flush(timeout=20)
    while any(is_in_use(buffer) for buffer in buffers):
        await asyncio.sleep(0.01)


async def test_what_ends_in_time_is_not_late(pair):
    client, server = pair
    buffer = bytearray(LARGE)
    sending = [asyncio.create_task(client.send(buffer, i, timeout=0.3)) for i in range(3)]
    await asyncio.sleep(0.1)
    for i in range(3):
        assert await server.recv(bytearray(LARGE), i, timeout=5) == LARGE
    assert await asyncio.gather(*sending) == [None] * 3
    await asyncio.sleep(0.4)
    assert not is_in_use(buffer)
    with pytest.raises(TimeoutError):  # the library ends this one itself
        await server.recv(bytearray(8), 9, timeout=0.05)


async def test_the_earliest_comes_first(pair):
    client, server = pair
    late = []

    async def send(tag, timeout):
        with pytest.raises(hawser.TimedOutError):
            await client.send(bytearray(LARGE), tag, timeout=timeout)
        late.append(tag)

    await asyncio.gather(send(3, 0.6), send(1, 0.2), send(2, 0.4))
    assert late == [1, 2, 3]
    for i in (1, 2, 3):
        await server.recv(bytearray(LARGE), i, timeout=20)


async def test_a_timer_keeps_no_worker(context):
    async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
        async with hawser.connect("127.0.0.1", listener.port, worker=worker) as client:
            server = await listener.accept()
            receiving = asyncio.create_task(server.recv(bytearray(8), timeout=3600))
            await asyncio.sleep(0)
            await client.send(b"12345678")
            assert await receiving == 8
            await server.close()
    gone = weakref.ref(worker)
    fds = len(os.listdir("/proc/self/fd"))
    del worker, listener, client, server, receiving
    gc.collect()
    assert gone() is None and len(os.listdir("/proc/self/fd")) <= fds


def stops_in_the_midst(pipe):
    async def main():
        async with hawser.connect("127.0.0.1", pipe.recv(), tcp_only=True) as ep:
            ep.send(bytearray(LARGE))
            await ep.send(b"go")
            os.kill(os.getpid(), signal.SIGSTOP)
            await ep.recv()

    asyncio.run(main())


async def test_a_sender_that_stops():
    """What UCX has begun to fill cannot be taken back from it either."""
    with other_process(stops_in_the_midst) as (pipe, process):
        async with hawser.listen(host="127.0.0.1") as listener:
            await asyncio.to_thread(pipe.send, listener.port)
            async with await listener.accept() as ep:
                into = bytearray(LARGE)
                start = time.monotonic()
                with pytest.raises(hawser.TimedOutError):
                    await ep.recv(into, timeout=0.5)
                assert time.monotonic() - start < 5
                os.kill(process.pid, signal.SIGCONT)
                await ep.send(b"end")
                while is_in_use(into):
                    await asyncio.sleep(0.01)


@pytest.mark.parametrize("acknowledged", [False, True])
def test_blocking_calls(acknowledged):
    with hawser.sync.listen(host="127.0.0.1") as listener:
        with hawser.sync.connect("127.0.0.1", listener.port) as client, listener.accept() as server:
            start = time.monotonic()
            with pytest.raises(hawser.TimedOutError):
                client.send(bytearray(LARGE), 7, timeout=0.2, sync=acknowledged)
            assert time.monotonic() - start < 5
            assert server.recv(tag=7, timeout=20)


LEFT = """
import asyncio, hawser
async def main():
    asyncio.get_running_loop().slow_callback_duration = 60
    async with hawser.listen(host="127.0.0.1") as listener:
        async with hawser.connect("127.0.0.1", listener.port) as client, await listener.accept() as server:
            late = asyncio.create_task(client.send(bytearray(4 << 20), timeout=0.1))
            try:
                await late
            except TimeoutError:
                print("late")
            waiting = asyncio.create_task(client.send(bytearray(4 << 20), timeout=500))
            await asyncio.sleep(0.1)
            client.abort()
            try:
                await waiting
            except hawser.HawserError as e:
                print(e.name)
asyncio.run(main())
"""


def test_left_behind():
    assert run_script(LEFT) == (0, "late\nCANCELED\n")
