"""send_recv over a blocking TCP socket: what UCX is compared with."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from hawser.ucp.benchmarks.backends.ucp_async import knocker_for
from hawser.ucxx.benchmarks.backends.base import BaseClient, BaseServer


def _receive(connection: socket.socket, into: bytearray) -> None:
    rest = memoryview(into)
    while len(rest) > 0:
        got = connection.recv_into(rest)
        if got == 0:
            raise ConnectionResetError("the peer is gone")
        rest = rest[got:]


def _buffers(args: Any) -> Callable[[], bytearray]:
    """Gives what the next message is received into."""
    same = bytearray(args.n_bytes)
    return lambda: same if args.reuse_alloc else bytearray(args.n_bytes)


class SocketServer(BaseServer):
    """Echoes bytes; both ends know how many come."""

    has_cuda_support = False

    def run(self) -> None:
        buffer = _buffers(self.args)
        with socket.create_server(("", self.args.port or 0)) as server:
            self.queue.put(server.getsockname()[1])
            connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(self.args.n_iter + self.args.n_warmup_iter):
                message = buffer()
                _receive(connection, message)
                connection.sendall(message)


class SocketClient(BaseClient):
    """Measures over a socket."""

    has_cuda_support = False

    def run(self) -> None:
        buffer, knocker = _buffers(self.args), knocker_for(self.args)
        out = bytes(self.args.n_bytes)
        times = []
        with socket.create_connection((self.server_address, self.port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            knocker.start()
            for _ in range(self.args.n_iter + self.args.n_warmup_iter):
                start = time.monotonic()
                into = buffer()
                connection.sendall(out)
                _receive(connection, into)
                times.append(time.monotonic() - start)
            knocker.stop()
        self.queue.put(times[self.args.n_warmup_iter :])
        if self.args.report_gil_contention:
            self.queue.put(knocker.contention_metric)
