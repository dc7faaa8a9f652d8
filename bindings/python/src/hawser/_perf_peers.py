"""The other ways between two processes that python -m hawser perf compares with.

Each peer is a pair of functions, for the listening and the connecting end: `end(link, first)` gets a
Link and exchanges messages as that tells it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol


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


async def _rounds(link: Link, first: bool, send: Any, recv: Any) -> None:
    # The loop goes on meanwhile: what was sent may still need it.
    while (task := await asyncio.to_thread(link.rounds)) is not None:
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


def _blocking_rounds(link: Link, first: bool, send: Any, recv: Any, memory: Callable[[int], Any] = bytearray) -> None:
    while (task := link.rounds()) is not None:
        size, count = task
        out, into = memory(size), memory(size)
        for _ in range(count):
            if first:
                send(out)
                recv(into)
            else:
                recv(into)
                send(into)
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


def hawser_sync(link: Link, first: bool) -> None:
    """hawser.sync."""
    import hawser.sync

    if first:
        with hawser.sync.connect("127.0.0.1", link.port()) as ep:
            _blocking_rounds(link, True, ep.send, ep.recv)
        return
    with hawser.sync.listen(host="127.0.0.1") as listener:
        link.tell_port(listener.port)
        with listener.accept() as ep:
            _blocking_rounds(link, False, ep.send, ep.recv)


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

    def recv(into: bytearray) -> None:
        view = memoryview(into)
        while view:
            n = end.recv_into(view)
            if n == 0:
                raise ConnectionError("the other end is gone")
            view = view[n:]

    with end:
        _blocking_rounds(link, first, end.sendall, recv)


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


def mpi4py(link: Link, first: bool) -> None:
    """Blocking Send and Recv of mpi4py; the processes were started by mpiexec."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    other = 1 - world.rank
    if not first:
        link.tell_port(0)
    else:
        link.port()
    _blocking_rounds(link, first, lambda data: world.Send(data, other), lambda into: world.Recv(into, other))


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


def ucxx_sync(link: Link, first: bool) -> None:
    """UCXX's objects without asyncio; the program polls."""
    import ucxx._lib.libucxx as api
    from ucxx._lib.arr import Array

    worker = api.UCXWorker(api.UCXContext(feature_flags=(api.Feature.TAG, api.Feature.WAKEUP)))
    if first:
        end = api.UCXEndpoint.create(worker, "127.0.0.1", link.port(), endpoint_error_handling=True)
    else:
        came: list[Any] = []
        listener = api.UCXListener.create(worker=worker, port=0, cb_func=came.append)
        link.tell_port(listener.port)
        while not came:
            worker.progress()
        end = listener.create_endpoint_from_conn_request(came[0], endpoint_error_handling=True)
    tags = [api.UCXXTag(0), api.UCXXTag(1)]

    def wait(request: Any) -> None:
        while not request.completed:
            worker.progress()
        request.check_error()

    _blocking_rounds(
        link,
        first,
        lambda data: wait(end.tag_send(data, tags[first])),
        lambda into: wait(end.tag_recv(into, tags[not first])),
        lambda size: Array(bytearray(size)),
    )


class Peer(NamedTuple):
    end: Callable[[Link, bool], None]
    module: str
    by_mpiexec: bool = False


PEERS = {
    "hawser": Peer(hawser, "hawser"),
    "hawser-sync": Peer(hawser_sync, "hawser"),
    "asyncio": Peer(asyncio_streams, "asyncio"),
    "uvloop": Peer(uvloop_streams, "uvloop"),
    "sockets": Peer(sockets, "socket"),
    "pyzmq": Peer(pyzmq, "zmq"),
    "mpi4py": Peer(mpi4py, "mpi4py", by_mpiexec=True),
    "ucxx": Peer(ucxx, "ucxx"),
    "ucxx-sync": Peer(ucxx_sync, "ucxx"),
}


def mpiexec() -> str | None:
    """The program that starts processes of MPI: on the path, or of this environment."""
    return shutil.which("mpiexec") or shutil.which("mpiexec", path=os.path.dirname(sys.executable))


def installed() -> tuple[list[str], list[str]]:
    """The peers that can be compared with here, and why the others cannot."""
    found, missing = [], []
    for name, peer in PEERS.items():
        if importlib.util.find_spec(peer.module) is None:
            missing.append(f"{name}: {peer.module} is not installed")
        elif peer.by_mpiexec and mpiexec() is None:
            missing.append(f"{name}: there is no MPI: mpiexec is not found")
        else:
            found.append(name)
    return found, missing
