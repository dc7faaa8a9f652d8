"""send_recv over the synchronous core: requests, and progress by hand or by a thread."""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from collections import deque
from typing import Any

from hawser import ucxx
from hawser.ucp._libs.ucx_api import AllocatorType
from hawser.ucp._libs.utils import print_key_value
from hawser.ucp.benchmarks.backends.ucp_async import device_allocator, print_ucx_config
from hawser.ucxx._lib import libucxx as ucx_api
from hawser.ucxx._lib.arr import Array
from hawser.ucxx.benchmarks.backends.base import BaseClient, BaseServer
from hawser.ucxx.benchmarks.utils import get_allocator

WireupMessage = bytearray(b"wireup")
_TAG = ucx_api.UCXXTag(0)


def register_am_allocators(args: Namespace, worker: ucx_api.UCXWorker) -> None:
    """Have active messages of device memory received into arrays of the library under test, if there are any."""
    on_device = device_allocator(args.object_type)
    if args.enable_am and on_device is not None:
        worker.register_am_allocator(on_device, AllocatorType.CUDA)


def _prepare(args: Namespace) -> tuple[ucx_api.UCXWorker, Any]:
    """A worker that can do what is measured and no more, and the array library."""
    xp = get_allocator(args.object_type, args.rmm_init_pool_size, args.rmm_managed_memory)
    feature = ucx_api.Feature.AM if args.enable_am else ucx_api.Feature.TAG
    worker = ucx_api.UCXWorker(ucx_api.UCXContext(feature_flags=(feature, ucx_api.Feature.WAKEUP)))
    register_am_allocators(args, worker)
    if args.progress_mode.startswith("thread"):
        worker.start_progress_thread(polling_mode=args.progress_mode == "thread-polling")
    else:
        worker.init_blocking_progress_mode()
    return worker, xp


class _Transfers:
    """The sends and receives of one end, and how it waits for them."""

    def __init__(self, args: Namespace, worker: ucx_api.UCXWorker) -> None:
        self._args = args
        self._worker = worker
        self._pending: deque[ucx_api.UCXRequest] = deque()
        self.ep: Any = None

    def progress(self) -> None:
        """Wait for something to happen, or let the thread that does."""
        if self._args.progress_mode == "blocking":
            self._worker.progress_worker_event()
        elif self._args.progress_mode == "polling":
            self._worker.progress()
        else:
            time.sleep(0)

    def send(self, message: Any) -> ucx_api.UCXRequest:
        """Post a send."""
        return self._add(self.ep.am_send(message) if self._args.enable_am else self.ep.tag_send(message, _TAG))

    def recv(self, into: Any) -> ucx_api.UCXRequest:
        """Post a receive; an active message comes into memory of its own."""
        return self._add(self.ep.am_recv() if self._args.enable_am else self.ep.tag_recv(into, _TAG))

    def _add(self, request: ucx_api.UCXRequest) -> ucx_api.UCXRequest:
        self._pending.append(request)
        return request

    async def wait(self, most: int = 0) -> None:
        """Until no more than `most` are under way. Raises what one failed with."""
        while len(self._pending) > most:
            request = self._pending.popleft()
            if self._args.asyncio_wait:
                await request.wait()
                continue
            while not request.completed:
                self.progress()
            request.check_error()


class UCXPyCoreServer(BaseServer):
    """Echoes one message after the other."""

    has_cuda_support = True

    def run(self) -> None:
        worker, xp = _prepare(self.args)
        transfers = _Transfers(self.args, worker)
        met: list[int] = []
        listener = ucx_api.UCXListener.create(worker, self.args.port or 0, met.append)
        self.queue.put(listener.port)
        while not met:
            transfers.progress()
        transfers.ep = listener.create_endpoint_from_conn_request(met[0], self.args.error_handling)
        asyncio.run(self._echo(transfers, xp))
        transfers.ep.close_blocking()
        worker.stop_progress_thread()

    async def _echo(self, transfers: _Transfers, xp: Any) -> None:
        args = self.args
        into: Any = Array(bytearray(WireupMessage))
        for i in range(args.n_iter + args.n_warmup_iter + 1):
            received = transfers.recv(into)
            await transfers.wait()
            transfers.send(received.recv_buffer if args.enable_am else into)
            await transfers.wait()
            if i == 0 or not args.reuse_alloc:
                into = Array(xp.zeros(args.n_bytes, dtype="u1"))


class UCXPyCoreClient(BaseClient):
    """Waits for each send and receive; with --delay-progress only where too many are under way."""

    has_cuda_support = True

    def run(self) -> None:
        worker, xp = _prepare(self.args)
        transfers = _Transfers(self.args, worker)
        transfers.ep = ucx_api.UCXEndpoint.create(worker, self.server_address, self.port, self.args.error_handling)
        times = asyncio.run(self._measure(transfers, xp))
        transfers.ep.close_blocking()
        worker.stop_progress_thread()
        self.queue.put(times[self.args.n_warmup_iter :])

    async def _measure(self, transfers: _Transfers, xp: Any) -> list[float]:
        args = self.args
        # The first messages of a connection also choose its transports; they would count for the first round.
        transfers.send(Array(WireupMessage))
        transfers.recv(Array(bytearray(WireupMessage)))
        await transfers.wait()
        most = max(args.max_outstanding - 1, 0) if args.delay_progress else 0
        out, into = Array(xp.ones(args.n_bytes, dtype="u1")), Array(xp.zeros(args.n_bytes, dtype="u1"))
        if args.cuda_profile:
            xp.cuda.profiler.start()
        times = []
        for _ in range(args.n_iter + args.n_warmup_iter):
            start = time.monotonic()
            if not args.reuse_alloc:
                into = Array(xp.zeros(args.n_bytes, dtype="u1"))
            transfers.send(out)
            await transfers.wait(most)
            transfers.recv(into)
            await transfers.wait(most)
            times.append(time.monotonic() - start)
        await transfers.wait()
        if args.cuda_profile:
            xp.cuda.profiler.stop()
        return times

    def print_backend_specific_config(self) -> None:
        args = self.args
        print_key_value("Transfer API", "AM" if args.enable_am else "TAG")
        print_key_value("Progress mode", args.progress_mode)
        print_key_value("Asyncio wait", args.asyncio_wait)
        print_key_value("Delay progress", f"True ({args.max_outstanding})" if args.delay_progress else "False")
        print_ucx_config(ucxx)
