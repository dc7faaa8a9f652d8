"""Loops that run inside of their own callbacks, as nest_asyncio has them in notebooks. SANITIZED"""

import asyncio
import heapq
import threading
import time

import pytest

import hawser
import hawser.sync
from hawser import ucp

PAUSE = 0.05  # seconds: longer than an await spins, so that what comes then wakes the loop


class NestingLoop(asyncio.SelectorEventLoop):
    """What a round within a round does not find is no error: it has been run by then."""

    def _run_once(self):
        timeout = max(0, self._scheduled[0]._when - self.time()) if self._scheduled else None
        self._process_events(self._selector.select(0 if self._ready else timeout))
        while self._scheduled and self._scheduled[0]._when <= self.time() + self._clock_resolution:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False
            self._ready.append(handle)
        for _ in range(len(self._ready)):
            if self._ready and not (handle := self._ready.popleft())._cancelled:
                handle._run()


class Policy(asyncio.DefaultEventLoopPolicy):
    _loop_factory = NestingLoop


@pytest.fixture
def event_loop_policy():
    return Policy()


def run_nested(coroutine):
    """run_until_complete() of a loop that runs: what nest_asyncio makes of it."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(asyncio.wait_for(coroutine, 10))
    outer = asyncio.current_task()
    asyncio.tasks._leave_task(loop, outer)
    try:
        while not task.done():
            loop._run_once()
    finally:
        asyncio.tasks._enter_task(loop, outer)
    return task.result()


@pytest.fixture
def errors():
    return []


async def in_turns(receive, errors):
    """Each second message is received by a loop inside of the step that the first one woke."""
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    got = []
    used = time.process_time()
    for _ in range(3):
        got.append(await receive())
        got.append(run_nested(receive()))
    assert got == [b"%d" % n for n in range(6)] and not errors
    assert time.process_time() - used < 3 * PAUSE  # it sleeps meanwhile


async def test_a_loop_inside_of_a_task(errors):
    def send(port):
        with hawser.Context() as context, hawser.Worker(context) as worker:
            with hawser.sync.connect("127.0.0.1", port, worker=worker) as peer:
                for n in range(6):
                    time.sleep(PAUSE)
                    peer.send(b"%d" % n)

    async def receive():
        await endpoint.recv(buffer)
        return bytes(buffer)

    buffer = bytearray(1)
    with hawser.Context() as context:
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            thread = threading.Thread(target=send, args=(listener.port,))
            thread.start()
            async with await listener.accept() as endpoint:
                await in_turns(receive, errors)
                await asyncio.to_thread(thread.join)


async def test_a_loop_inside_of_a_task_of_ucp(errors):
    def send(port):
        async def connect():
            context = ucp.ApplicationContext()
            peer = await context.create_endpoint("127.0.0.1", port)
            for n in range(6):
                await asyncio.sleep(PAUSE)
                await peer.send(b"%d" % n)
            await peer.close()

        asyncio.run(connect())

    async def receive():
        await endpoint.recv(buffer)
        return bytes(buffer)

    buffer = bytearray(1)
    accepted = asyncio.get_running_loop().create_future()
    listener = ucp.create_listener(accepted.set_result)
    thread = threading.Thread(target=send, args=(listener.port,))
    thread.start()
    endpoint = await accepted
    await in_turns(receive, errors)
    await asyncio.to_thread(thread.join)
    await endpoint.close()
