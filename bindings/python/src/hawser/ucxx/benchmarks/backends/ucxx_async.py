"""send_recv over the asyncio API of `ucxx`."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from hawser import ucxx
from hawser.ucp._libs.utils import print_key_value
from hawser.ucp.benchmarks.backends import ucp_async
from hawser.ucxx._lib.arr import Array
from hawser.ucxx.benchmarks.utils import get_allocator


def register_am_allocators(args: Namespace) -> None:
    """Have active messages of device memory received into arrays of the library under test, if there are any."""
    on_device = ucp_async.device_allocator(args.object_type)
    if args.enable_am and on_device is not None:
        ucxx.core._get_ctx().register_am_allocator(on_device, "cuda")


class _End:
    """What both ends share."""

    api: Any = ucxx
    args: Namespace

    def prepare(self) -> Any:
        """Initialise the API; gives the array library."""
        args = self.args
        ucxx.init(progress_mode=args.progress_mode)
        xp = get_allocator(args.object_type, args.rmm_init_pool_size, args.rmm_managed_memory)
        register_am_allocators(args)
        return xp


class UCXPyAsyncServer(_End, ucp_async.UCXPyAsyncServer):
    """Echoes over an Endpoint."""

    async def echo(self, ep: Any, xp: Any) -> None:
        if self.args.n_buffers == 1:
            await super().echo(ep, xp)
            return
        for _ in range(self.args.n_iter + self.args.n_warmup_iter):
            await ep.send_multi(await ep.recv_multi())


class UCXPyAsyncClient(_End, ucp_async.UCXPyAsyncClient):
    """Measures over an Endpoint."""

    async def measure(self, ep: Any, xp: Any) -> list[float]:
        if self.args.n_buffers == 1:
            return await super().measure(ep, xp)
        out = [Array(xp.ones(self.args.n_bytes, dtype="u1"))] * self.args.n_buffers
        times = []
        for _ in range(self.args.n_iter + self.args.n_warmup_iter):
            start = time.monotonic()
            await ep.send_multi(out)
            await ep.recv_multi()
            times.append(time.monotonic() - start)
        return times

    def print_backend_specific_config(self) -> None:
        print_key_value("Transfer API", "AM" if self.args.enable_am else "TAG")
        print_key_value("Progress mode", self.args.progress_mode)
        ucp_async.print_ucx_config(ucxx)
