"""Peers in processes of their own, which also die.

TIMEOUT: 180
"""

import asyncio
import contextlib
import os
import signal
import time

import pytest
from conftest import other_process, run_script
from echo_support import echo

import hawser
import hawser.sync


def echo_server(pipe, transports):
    async def main():
        with hawser.Context(config={"TLS": transports}) as context:
            async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
                pipe.send(listener.port)

                tasks = [asyncio.create_task(echo(await listener.accept())) for _ in range(int(pipe.recv()))]
                await asyncio.gather(*tasks)

    asyncio.run(main())


@pytest.fixture(params=["sysv,tcp,self", "tcp,self"], ids=["shm", "tcp"])
def transports(request):
    return request.param


@pytest.mark.parametrize("size", [8, 100_000, 8_000_000])
async def test_echo(transports, size):
    with other_process(echo_server, transports) as (pipe, _), hawser.Context(config={"TLS": transports}) as context:
        port = pipe.recv()
        pipe.send(2)
        async with hawser.Worker(context) as worker:
            for _ in range(2):
                async with hawser.connect("127.0.0.1", port, worker=worker) as endpoint:
                    assert ("sysv" in endpoint.info()["lanes"]) == ("sysv" in transports)
                    data = os.urandom(size)
                    for _ in range(5):
                        sending = endpoint.send(data, 1)
                        assert await endpoint.recv(tag=2) == data
                        await sending


def test_sync_echo(transports):
    with other_process(echo_server, transports) as (pipe, _), hawser.Context(config={"TLS": transports}) as context:
        port = pipe.recv()
        pipe.send(1)
        with hawser.Worker(context) as worker:
            with hawser.sync.connect("127.0.0.1", port, worker=worker) as endpoint:
                into = bytearray(5)
                for i in range(500):
                    endpoint.send(b"%05d" % i, 1)
                    assert endpoint.recv(into, 2) == 5
                    assert into == b"%05d" % i
                with pytest.raises(hawser.TimedOutError):
                    endpoint.recv(into, 3, timeout=0.05)


def victim(pipe, transports):
    async def main():
        async with hawser.Worker(hawser.Context(config={"TLS": transports})) as worker:
            async with hawser.connect("127.0.0.1", pipe.recv(), worker=worker) as endpoint:
                await endpoint.send(b"here", 1)
                await asyncio.sleep(1000)

    asyncio.run(main())


async def test_killed_peer(transports):
    with hawser.Context(config={"TLS": transports}) as context:
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            with other_process(victim, transports) as (pipe, process):
                pipe.send(listener.port)
                endpoint = await listener.accept()
                left = []
                endpoint.on_disconnect = left.append
                assert await endpoint.recv(tag=1) == b"here"
                receive = endpoint.recv(bytearray(1), 2)
                message = endpoint.recv_am(4)
                os.kill(process.pid, signal.SIGKILL)
                with pytest.raises(hawser.HawserError) as caught:
                    await asyncio.wait_for(receive, 10)
                assert caught.value.category == "peer" and not isinstance(caught.value, hawser.PeerClosedError)
                with pytest.raises(hawser.HawserError):
                    await asyncio.wait_for(message, 10)
                assert left == [endpoint] and not endpoint.connected
                await endpoint.close()


def receiver(pipe):
    async def main():
        async with hawser.Worker(hawser.Context(config={"TLS": "tcp,self"})) as worker:
            async with hawser.connect("127.0.0.1", pipe.recv(), worker=worker) as endpoint:
                into = bytearray(64)
                while True:
                    await endpoint.recv(into, 1)

    asyncio.run(main())


def counting_server(pipe, transports):
    async def main():
        context = hawser.Context(config={"TLS": transports})
        with hawser.listen(host="127.0.0.1", worker=hawser.Worker(context)) as listener:
            pipe.send(listener.port)
            endpoint = await listener.accept()
            await endpoint.send(b"welcome")
            count = 0
            with contextlib.suppress(ConnectionResetError):
                while True:
                    await endpoint.recv_am()
                    count += 1
            pipe.send(count)

    asyncio.run(main())


def sender_that_is_killed(pipe, transports):
    async def main():
        context = hawser.Context(config={"TLS": transports})
        endpoint = await hawser.connect("127.0.0.1", pipe.recv(), worker=hawser.Worker(context))
        await endpoint.recv()
        pipe.send("connected")
        pipe.recv()
        for _ in range(20):
            await endpoint.send_am(b"message")
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())


def test_what_was_sent_before_the_sender_was_killed():
    """It is in shared memory, and arrives although the receiver hears of the end first."""
    transports = "sysv,tcp,self"
    with (
        other_process(counting_server, transports) as (pipe, server),
        other_process(sender_that_is_killed, transports) as (to, sender),
    ):
        to.send(pipe.recv())
        assert to.recv() == "connected"
        os.kill(server.pid, signal.SIGSTOP)
        to.send("now")
        sender.join(30)
        assert sender.exitcode == -signal.SIGKILL
        os.kill(server.pid, signal.SIGCONT)
        assert pipe.recv() == 20


async def test_the_end_is_told_after_a_send_was_refused():
    """UCX refuses a send at the call, but tells that the connection has failed only while there is progress."""
    late = []
    with hawser.Context(config={"TLS": "tcp,self"}) as context:
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            for _ in range(6):
                with other_process(receiver) as (pipe, process):
                    pipe.send(listener.port)
                    endpoint = await listener.accept()
                    gone = asyncio.Event()
                    endpoint.on_disconnect = lambda _, gone=gone: gone.set()
                    asyncio.get_running_loop().call_later(0.3, process.kill)
                    with pytest.raises(hawser.HawserError):
                        while True:
                            await endpoint.send(bytes(64), 1)
                    start = time.monotonic()
                    await gone.wait()
                    late.append(time.monotonic() - start)
                    endpoint.abort()
    assert sorted(late)[-2] < 0.05  # one may meet a busy machine


async def test_killed_peers_one_after_another(transports):
    """A server goes on serving while its peers are killed."""
    with hawser.Context(config={"TLS": transports}) as context:
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            for _ in range(3):
                with other_process(victim, transports) as (pipe, process):
                    pipe.send(listener.port)
                    async with await listener.accept() as endpoint:
                        assert await endpoint.recv(tag=1) == b"here"
                        os.kill(process.pid, signal.SIGKILL)
                        with pytest.raises(hawser.HawserError):
                            await endpoint.recv(tag=2)
            stats = worker.stats()
            assert stats["failures"] == 3 and stats["safety_wakeups"] == 0


_WITHOUT_MEMORY = """
import asyncio, hawser, pathlib, resource

data = bytearray(100 << 20)

async def main():
    problems = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: problems.append(type(context["exception"]).__name__))
    async with hawser.listen(host="127.0.0.1") as listener, \
            hawser.connect("127.0.0.1", listener.port) as client, await listener.accept() as server:
        receive = server.recv_am(5)
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + (30 << 20), resource.RLIM_INFINITY))
        sending = client.send_am(data, 5)
        try:
            await receive
        except hawser.NoMemoryError:
            print("waited")
        await sending
        await client.send_am(data, 5)
        await client.send_am(b"small", 5)
        await asyncio.sleep(0.1)
        try:
            await server.recv_am(5)
        except hawser.NoMemoryError:
            print("came later")
        print(bytes((await server.recv_am(5))[1]))
        server.worker.am_handler(6, lambda *message: problems.append(message))
        await client.send_am(data, 6)
        while not problems:
            await asyncio.sleep(0.01)
        print(problems)

asyncio.run(main())
"""


def test_an_active_message_without_memory_is_an_error():
    assert run_script(_WITHOUT_MEMORY) == (0, "waited\ncame later\nb'small'\n['NoMemoryError']\n")
