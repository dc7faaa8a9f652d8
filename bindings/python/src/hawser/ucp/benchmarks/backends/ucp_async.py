"""send_recv over the asyncio API of `ucp`."""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from hawser import ucp
from hawser.ucp._libs.arr import Array
from hawser.ucp._libs.utils import print_key_value
from hawser.ucp.benchmarks.backends.base import BaseClient, BaseServer
from hawser.ucp.benchmarks.utils import get_allocator


def device_allocator(object_type: str) -> Callable[[int], Any] | None:
    """What active messages of device memory are received into; None for "numpy"."""
    if object_type == "cupy":
        import cupy as cp

        return lambda n: cp.empty(n, dtype=cp.uint8)
    if object_type == "rmm":
        import rmm

        return lambda n: rmm.DeviceBuffer(size=n)
    return None


def register_am_allocators(args: Namespace) -> None:
    """Have active messages received into arrays of the library under test; nothing without --enable-am."""
    if not args.enable_am:
        return
    import numpy as np

    ucp.register_am_allocator(lambda n: np.empty(n, dtype=np.uint8), "host")
    on_device = device_allocator(args.object_type)
    if on_device is not None:
        ucp.register_am_allocator(on_device, "cuda")


def buffers(args: Namespace, xp: Any) -> Callable[[], Array]:
    """Gives what the next message is received into."""

    def new() -> Array:
        return Array(xp.zeros(args.n_bytes, dtype="u1"))

    if not args.reuse_alloc:
        return new
    same = new()
    return lambda: same


class _AsyncEnd:
    """What both ends share."""

    has_cuda_support = True
    api: Any = ucp
    args: Namespace

    def prepare(self) -> Any:
        """Initialise the API; gives the array library."""
        args = self.args
        ucp.init()
        xp = get_allocator(args.object_type, args.rmm_init_pool_size, args.rmm_managed_memory)
        register_am_allocators(args)
        return xp


class UCXPyAsyncServer(_AsyncEnd, BaseServer):
    """Echoes over an Endpoint."""

    async def run(self) -> None:
        args, xp = self.args, self.prepare()
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        # A listener's callback fails in silence; who waits for the end must hear of it.
        async def serve(ep: Any) -> None:
            try:
                await self.echo(ep, xp)
                await ep.close()
            except Exception as e:
                served.set_exception(e)
            else:
                served.set_result(None)

        listener = self.api.create_listener(serve, args.port, endpoint_error_handling=args.error_handling)
        self.queue.put(listener.port)
        await served
        await asyncio.sleep(0)  # in which the listener's task for the client ends
        listener.close()

    async def echo(self, ep: Any, xp: Any) -> None:
        buffer = None if self.args.enable_am else buffers(self.args, xp)
        for _ in range(self.args.n_iter + self.args.n_warmup_iter):
            if buffer is None:
                await ep.am_send(await ep.am_recv())
            else:
                message = buffer()
                await ep.recv(message)
                await ep.send(message)


class _NoKnocker:
    """In the place of gilknocker's where contention is not asked for."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


def knocker_for(args: Namespace) -> Any:
    """What tells how the GIL was fought for, if that is asked for."""
    if not args.report_gil_contention:
        return _NoKnocker()
    from gilknocker import KnockKnock

    # As often as it can: the contention of small messages would read as none.
    return KnockKnock(polling_interval_micros=1)


class UCXPyAsyncClient(_AsyncEnd, BaseClient):
    """Measures over an Endpoint."""

    async def run(self) -> None:
        args, xp = self.args, self.prepare()
        ep = await self.api.create_endpoint(self.server_address, self.port, endpoint_error_handling=args.error_handling)
        knocker = knocker_for(args)
        if args.cuda_profile:
            xp.cuda.profiler.start()
        knocker.start()
        times = await self.measure(ep, xp)
        knocker.stop()
        if args.cuda_profile:
            xp.cuda.profiler.stop()
        self.queue.put(times[args.n_warmup_iter :])
        if args.report_gil_contention:
            self.queue.put(knocker.contention_metric)

    async def measure(self, ep: Any, xp: Any) -> list[float]:
        out = Array(xp.ones(self.args.n_bytes, dtype="u1"))
        buffer = None if self.args.enable_am else buffers(self.args, xp)
        times = []
        for _ in range(self.args.n_iter + self.args.n_warmup_iter):
            start = time.monotonic()
            if buffer is None:
                await ep.am_send(out)
                await ep.am_recv()
            else:
                into = buffer()
                await ep.send(out)
                await ep.recv(into)
            times.append(time.monotonic() - start)
        return times

    def print_backend_specific_config(self) -> None:
        print_key_value("Transfer API", "AM" if self.args.enable_am else "TAG")
        print_ucx_config()


def print_ucx_config(api: Any = ucp) -> None:
    """What decides the way that messages take."""
    config = api.get_config()
    print_key_value("UCX_TLS", config["TLS"])
    print_key_value("UCX_NET_DEVICES", config["NET_DEVICES"])
