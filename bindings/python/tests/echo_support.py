"""Peers that tests of several event loops share: an echo, and many clients of it in threads."""

import threading
import time
from collections.abc import Callable

import pytest

import hawser


async def echo(endpoint):
    """Send back by tag 2 what comes by tag 1, until the peer closes."""
    async with endpoint:
        try:
            while True:
                await endpoint.send(await endpoint.recv(tag=1), 2)
        except hawser.PeerClosedError:
            pass


async def converse(context, port, number):
    """A client of echo() with a worker of its own."""
    async with (
        hawser.Worker(context) as worker,
        hawser.connect("127.0.0.1", port, worker=worker) as endpoint,
    ):
        for i in range(200):
            data = b"%d %d" % (number, i)
            await endpoint.send(data, 1)
            assert await endpoint.recv(tag=2) == data


def run_in_threads(serve: Callable[[list, threading.Event], None], clients: list[Callable[[int], None]]) -> None:
    """`serve(ports, done)` in one thread, each client with the port in its own; nothing may fail."""
    ports, done, failures = [], threading.Event(), []

    def run(call, *args):
        try:
            call(*args)
        except BaseException as e:
            failures.append(e)

    server = threading.Thread(target=run, args=(serve, ports, done))
    server.start()
    while not ports and not failures:
        time.sleep(0.01)
    threads = [threading.Thread(target=run, args=(client, ports[0])) for client in clients if ports]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    done.set()
    server.join(60)
    assert failures == []


async def let_go(buffer, sleep):
    """Until nobody holds a bytearray any more."""
    for _ in range(1000):
        await sleep(0.001)
        try:
            buffer.append(0)
            return
        except BufferError:
            pass
    pytest.fail("the buffer is still held")
