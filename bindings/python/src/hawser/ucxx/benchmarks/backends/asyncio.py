"""send_recv over asyncio's TCP streams: what UCX is compared with."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from hawser.ucp.benchmarks.backends.ucp_async import knocker_for
from hawser.ucxx.benchmarks.backends.base import BaseClient, BaseServer

_LIMIT = 1 << 30  # bytes that a stream takes from the kernel before they are read


class AsyncioServer(BaseServer):
    """Echoes bytes; both ends know how many come."""

    has_cuda_support = False

    async def run(self) -> None:
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await self._echo(reader, writer)
            except Exception as e:
                served.set_exception(e)
            else:
                served.set_result(None)
            writer.close()

        server = await asyncio.start_server(serve, "0.0.0.0", self.args.port or 0, limit=_LIMIT)
        self.queue.put(server.sockets[0].getsockname()[1])
        await served
        server.close()

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(self.args.n_iter + self.args.n_warmup_iter):
            writer.write(await reader.readexactly(self.args.n_bytes))
            await writer.drain()


class AsyncioClient(BaseClient):
    """Measures over a stream."""

    has_cuda_support = False

    async def run(self) -> None:
        reader, writer = await asyncio.open_connection(self.server_address, self.port, limit=_LIMIT)
        knocker: Any = knocker_for(self.args)
        out = bytes(self.args.n_bytes)
        times = []
        knocker.start()
        for _ in range(self.args.n_iter + self.args.n_warmup_iter):
            start = time.monotonic()
            writer.write(out)
            await writer.drain()
            await reader.readexactly(len(out))
            times.append(time.monotonic() - start)
        knocker.stop()
        writer.close()
        self.queue.put(times[self.args.n_warmup_iter :])
        if self.args.report_gil_contention:
            self.queue.put(knocker.contention_metric)
