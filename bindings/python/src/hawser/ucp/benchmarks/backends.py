"""The two ends of send_recv over each backend: each gives the seconds of every round trip."""

from __future__ import annotations

import asyncio
import importlib
import struct
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from hawser import ucp
from hawser.ucp._libs import ucx_api
from hawser.ucp._libs.arr import Array
from hawser.ucp._libs.utils_test import blocking_am_recv, blocking_am_send, blocking_recv, blocking_send


def allocate(args: Namespace) -> Any:
    """An array of the size under test, of the library that was asked for."""
    xp = importlib.import_module("numpy" if args.object_type == "numpy" else "cupy")
    return xp.zeros(args.n_bytes, dtype="u1")


def _rounds(args: Namespace) -> int:
    return int(args.n_iter + args.n_warmup_iter)


async def _exchange(ep: Any, args: Namespace, first: bool, out: Any, into: Any) -> None:
    """One round trip of an asyncio endpoint."""
    if not args.reuse_alloc:
        into = allocate(args)
    if args.enable_am:
        if first:
            await ep.am_send(out)
            await ep.am_recv()
        else:
            await ep.am_send(await ep.am_recv())
    elif first:
        await ep.send(out)
        await ep.recv(into)
    else:
        await ep.recv(into)
        await ep.send(into)


async def _async_end(ep: Any, args: Namespace, first: bool) -> list[float]:
    out, into = allocate(args), allocate(args)
    times = []
    for _ in range(_rounds(args)):
        start = time.perf_counter()
        await _exchange(ep, args, first, out, into)
        times.append(time.perf_counter() - start)
    return times


def async_server(args: Namespace, tell_port: Callable[[int], None]) -> list[float]:
    """ucp-async, listening."""

    async def run() -> list[float]:
        ucp.init()
        done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()

        async def serve(ep: Any) -> None:
            try:
                times = await _async_end(ep, args, False)
                await ep.close()
            except Exception as e:
                done.set_exception(e)
            else:
                done.set_result(times)

        listener = ucp.create_listener(serve, args.port, endpoint_error_handling=args.error_handling)
        tell_port(listener.port)
        times = await done
        listener.close()
        return times

    return asyncio.run(run())


def async_client(args: Namespace, port: int) -> list[float]:
    """ucp-async, connecting."""

    async def run() -> list[float]:
        ucp.init()
        ep = await ucp.create_endpoint(args.server_address, port, endpoint_error_handling=args.error_handling)
        times = await _async_end(ep, args, True)
        await ep.close()
        return times

    return asyncio.run(run())


def _core_end(worker: Any, ep: Any, args: Namespace, first: bool) -> list[float]:
    out, into = allocate(args), allocate(args)
    times: list[float] = []

    def send(msg: Any) -> None:
        if args.enable_am:
            blocking_am_send(worker, ep, msg)
        else:
            blocking_send(worker, ep, msg, 1)

    def recv(into: Any) -> Any:
        if args.enable_am:
            return blocking_am_recv(worker, ep)
        blocking_recv(worker, ep, into, 1)
        return into

    window = _Window(worker, ep, args)
    for _ in range(_rounds(args)):
        start = time.perf_counter()
        buffer = into if args.reuse_alloc else allocate(args)
        if args.delay_progress:
            window.exchange(out, buffer)
            if len(times) == _rounds(args) - 1:
                window.wait(0)
        elif first:
            send(out)
            recv(buffer)
        else:
            send(recv(buffer))
        times.append(time.perf_counter() - start)
    return times


class _Window:
    """Posts both directions; progress is made only when more than so many have not ended."""

    def __init__(self, worker: Any, ep: Any, args: Namespace) -> None:
        self.worker, self.ep, self.args = worker, ep, args
        self.pending = 0

    def _ended(self, *_: Any) -> None:
        self.pending -= 1

    def exchange(self, out: Any, into: Any) -> None:
        self.pending += 2
        if ucx_api.tag_send_nb(self.ep, Array(out), self.args.n_bytes, 1, self._ended) is None:
            self._ended()
        ucx_api.tag_recv_nb(self.worker, Array(into), self.args.n_bytes, 1, self._ended, ep=self.ep)
        self.wait(self.args.max_outstanding)

    def wait(self, most: int) -> None:
        while self.pending > most:
            self.worker.progress()


def core_server(args: Namespace, tell_port: Callable[[int], None]) -> list[float]:
    """ucp-core, listening."""
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    ep: list[Any] = []

    def accept(request: int) -> None:
        ep.append(ucx_api.UCXEndpoint.create_from_conn_request(worker, request, args.error_handling))

    listener = ucx_api.UCXListener(worker, args.port or 0, accept)
    tell_port(listener.port)
    while not ep:
        worker.progress()
    times = _core_end(worker, ep[0], args, False)
    ep[0].close()
    listener.close()
    return times


def core_client(args: Namespace, port: int) -> list[float]:
    """ucp-core, connecting."""
    worker = ucx_api.UCXWorker(ucx_api.UCXContext())
    ep = ucx_api.UCXEndpoint.create(worker, args.server_address, port, args.error_handling)
    times = _core_end(worker, ep, args, True)
    ep.close()
    return times


async def _tornado_end(stream: Any, args: Namespace, first: bool) -> list[float]:
    out, into = allocate(args), allocate(args)
    times = []
    for _ in range(_rounds(args)):
        start = time.perf_counter()
        if first:
            await stream.write(struct.pack("Q", out.nbytes) + out.data)
            await stream.read_into(into.data)
        else:
            await stream.read_bytes(8)
            await stream.read_into(into.data)
            await stream.write(into.data)
        times.append(time.perf_counter() - start)
    return times


def tornado_server(args: Namespace, tell_port: Callable[[int], None]) -> list[float]:
    """tornado, listening."""
    from tornado.netutil import bind_sockets
    from tornado.tcpserver import TCPServer

    async def run() -> list[float]:
        done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()

        class Server(TCPServer):
            async def handle_stream(self, stream: Any, address: Any) -> None:
                done.set_result(await _tornado_end(stream, args, False))

        sockets = bind_sockets(args.port or 0, "0.0.0.0")
        server = Server(max_buffer_size=1 << 34)
        server.add_sockets(sockets)
        tell_port(sockets[0].getsockname()[1])
        return await done

    return asyncio.run(run())


def tornado_client(args: Namespace, port: int) -> list[float]:
    """tornado, connecting."""
    from tornado.tcpclient import TCPClient

    async def run() -> list[float]:
        stream = await TCPClient().connect(args.server_address, port, max_buffer_size=1 << 34)
        return await _tornado_end(stream, args, True)

    return asyncio.run(run())


BACKENDS: dict[str, tuple[Callable[..., list[float]], Callable[..., list[float]]]] = {
    "ucp-async": (async_server, async_client),
    "ucp-core": (core_server, core_client),
    "tornado": (tornado_server, tornado_client),
}
