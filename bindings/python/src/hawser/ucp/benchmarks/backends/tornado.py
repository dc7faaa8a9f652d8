"""send_recv over tornado's TCP streams: what UCX is compared with."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
from tornado.tcpclient import TCPClient
from tornado.tcpserver import TCPServer

from hawser.ucp.benchmarks.backends.base import BaseClient, BaseServer

_MAX_BUFFER_SIZE = 1 << 30
_PORTS = range(10000, 60000)


class TornadoServer(BaseServer):
    """Echoes bytes; both ends know how many come."""

    has_cuda_support = False

    def _start_listener(self, server: Any, port: int | None) -> int:
        """Listen at `port`, or at the first that is free; gives the port."""
        if port is not None:
            server.listen(port)
            return port
        for candidate in _PORTS:
            try:
                server.listen(candidate)
            except OSError:
                continue
            return candidate
        raise OSError(f"no port from {_PORTS[0]} to {_PORTS[-1]} is free")

    async def run(self) -> None:
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        echo = self._echo

        class Server(TCPServer):
            async def handle_stream(self, stream: Any, address: Any) -> None:
                try:
                    await echo(stream)
                except Exception as e:
                    served.set_exception(e)
                else:
                    served.set_result(None)

        server = Server(max_buffer_size=_MAX_BUFFER_SIZE)
        self.queue.put(self._start_listener(server, self.args.port))
        await served
        server.stop()

    async def _echo(self, stream: Any) -> None:
        message: Any = None
        for _ in range(self.args.n_iter + self.args.n_warmup_iter):
            if message is None or not self.args.reuse_alloc:
                message = np.zeros(self.args.n_bytes, dtype="u1")
            await stream.read_into(message.data)
            await stream.write(message.data)


class TornadoClient(BaseClient):
    """Measures over a stream."""

    has_cuda_support = False

    async def run(self) -> None:
        stream = await TCPClient().connect(self.server_address, self.port, max_buffer_size=_MAX_BUFFER_SIZE)
        out = np.ones(self.args.n_bytes, dtype="u1")
        into: Any = None
        times = []
        for _ in range(self.args.n_iter + self.args.n_warmup_iter):
            start = time.monotonic()
            if into is None or not self.args.reuse_alloc:
                into = np.zeros(self.args.n_bytes, dtype="u1")
            await stream.write(out.data)
            await stream.read_into(into.data)
            times.append(time.monotonic() - start)
        stream.close()
        self.queue.put(times[self.args.n_warmup_iter :])
