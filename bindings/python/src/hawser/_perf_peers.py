"""The other ways between two processes that python -m hawser perf compares with.

Each peer is a pair of functions, for the listening and the connecting end: `end(link, first)` gets a
Link and exchanges messages as that tells it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import socket
from collections.abc import Callable
from typing import Any, Protocol


class Link(Protocol):
    """What an end is told by the program that measures."""

    def tell_port(self, port: int) -> None:
        """The listening end: where it listens."""

    def port(self) -> int:
        """The connecting end: where to."""

    def rounds(self) -> tuple[int, int] | None:
        """The next size and number of round trips; None at the end."""

    def done(self) -> None:
        """The rounds are over."""


async def _at_once(ask: Callable[[], tuple[int, int] | None]) -> tuple[int, int] | None:
    return ask()


# By default a loop goes on meanwhile: what was sent may still need it.
async def _rounds(link: Link, first: bool, send: Any, recv: Any, wait: Any = asyncio.to_thread) -> None:
    while (task := await wait(link.rounds)) is not None:
        size, count = task
        out, into = bytearray(size), bytearray(size)
        for _ in range(count):
            if first:
                await send(out)
                await recv(into)
            else:
                await recv(into)
                await send(into)
        link.done()


# ---- hawser ----


def hawser(link: Link, first: bool) -> None:
    """await of hawser, over what it chooses."""
    import hawser

    async def run() -> None:
        if first:
            async with hawser.connect("127.0.0.1", link.port()) as ep:
                await _rounds(link, True, ep.send, ep.recv)
            return
        async with hawser.listen(host="127.0.0.1") as listener:
            link.tell_port(listener.port)
            async with await listener.accept() as ep:
                await _rounds(link, False, ep.send, ep.recv)

    asyncio.run(run())


# ---- Streams of asyncio and uvloop ----


async def _streams(link: Link, first: bool) -> None:
    if first:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port(), limit=1 << 24)
    else:
        came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(lambda r, w: came.set_result((r, w)), "127.0.0.1", limit=1 << 24)
        link.tell_port(server.sockets[0].getsockname()[1])
        reader, writer = await came
        server.close()

    async def send(data: bytearray) -> None:
        writer.write(data)
        await writer.drain()

    async def recv(into: bytearray) -> None:
        into[:] = await reader.readexactly(len(into))

    await _rounds(link, first, send, recv)
    writer.close()


def asyncio_streams(link: Link, first: bool) -> None:
    """Streams of asyncio."""
    asyncio.run(_streams(link, first))


def uvloop_streams(link: Link, first: bool) -> None:
    """Streams of asyncio on uvloop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_streams(link, first))


# ---- Sockets ----


def sockets(link: Link, first: bool) -> None:
    """Blocking sockets."""
    if first:
        end = socket.create_connection(("127.0.0.1", link.port()))
    else:
        with socket.create_server(("127.0.0.1", 0)) as server:
            link.tell_port(server.getsockname()[1])
            end = server.accept()[0]
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def send(data: bytearray) -> None:
        end.sendall(data)

    async def recv(into: bytearray) -> None:
        view = memoryview(into)
        while view:
            n = end.recv_into(view)
            if n == 0:
                raise ConnectionError("the other end is gone")
            view = view[n:]

    with end, contextlib.closing(_rounds(link, first, send, recv, _at_once)) as rounds:
        # Nothing in it ever waits for a loop.
        with contextlib.suppress(StopIteration):
            rounds.send(None)


# ---- Others ----


def pyzmq(link: Link, first: bool) -> None:
    """pyzmq with asyncio."""
    import zmq
    import zmq.asyncio

    async def run() -> None:
        context = zmq.asyncio.Context()
        end = context.socket(zmq.PAIR)
        if first:
            end.connect(f"tcp://127.0.0.1:{link.port()}")
        else:
            link.tell_port(end.bind_to_random_port("tcp://127.0.0.1"))

        async def send(data: bytearray) -> None:
            await end.send(data, copy=False)

        async def recv(into: bytearray) -> None:
            into[:] = (await end.recv(copy=False)).buffer

        await _rounds(link, first, send, recv)
        end.close()
        context.term()

    asyncio.run(run())


def ucxx(link: Link, first: bool) -> None:
    """UCXX itself, in its default mode."""
    import ucxx

    async def run() -> None:
        ucxx.init()
        if first:
            ep = await ucxx.create_endpoint("127.0.0.1", link.port())
            await _rounds(link, True, ep.send, ep.recv)
        else:
            came: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            async def serve(ep: Any) -> None:
                await _rounds(link, False, ep.send, ep.recv)
                came.set_result(ep)

            listener = ucxx.create_listener(serve)
            link.tell_port(listener.port)
            ep = await came
            listener.close()
        await ep.close()

    asyncio.run(run())
    with contextlib.suppress(Exception):
        ucxx.reset()


# The function of each peer, and the module it needs.
PEERS: dict[str, tuple[Callable[[Link, bool], None], str]] = {
    "hawser": (hawser, "hawser"),
    "asyncio": (asyncio_streams, "asyncio"),
    "uvloop": (uvloop_streams, "uvloop"),
    "sockets": (sockets, "socket"),
    "pyzmq": (pyzmq, "zmq"),
    "ucxx": (ucxx, "ucxx"),
}


def installed() -> tuple[list[str], list[str]]:
    """The peers that can be compared with here, and why the others cannot."""
    found, missing = [], []
    for name, (_, module) in PEERS.items():
        if importlib.util.find_spec(module) is not None:
            found.append(name)
        else:
            missing.append(f"{name}: {module} is not installed")
    return found, missing
