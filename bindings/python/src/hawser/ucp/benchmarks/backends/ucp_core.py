"""send_recv over the synchronous core: callbacks, and progress that is made by hand."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from hawser.ucp._libs import ucx_api
from hawser.ucp._libs.arr import Array, asarray
from hawser.ucp._libs.exceptions import UCXCloseError
from hawser.ucp._libs.utils import print_key_value
from hawser.ucp.benchmarks.backends.base import BaseClient, BaseServer
from hawser.ucp.benchmarks.backends.ucp_async import device_allocator, print_ucx_config
from hawser.ucp.benchmarks.utils import get_allocator

WireupMessage = bytearray(b"wireup")
_TAG = 0


def register_am_allocators(args: Namespace, worker: ucx_api.UCXWorker) -> None:
    """Have active messages received into arrays of the library under test; nothing without --enable-am."""
    if not args.enable_am:
        return
    import numpy as np

    worker.register_am_allocator(lambda n: np.empty(n, dtype=np.uint8), ucx_api.AllocatorType.HOST)
    on_device = device_allocator(args.object_type)
    if on_device is not None:
        worker.register_am_allocator(on_device, ucx_api.AllocatorType.CUDA)


def _prepare(args: Namespace) -> tuple[ucx_api.UCXWorker, Any]:
    """A worker that can do what is measured and no more, and the array library."""
    xp = get_allocator(args.object_type, args.rmm_init_pool_size, args.rmm_managed_memory)
    feature = ucx_api.Feature.AM if args.enable_am else ucx_api.Feature.TAG
    worker = ucx_api.UCXWorker(ucx_api.UCXContext(feature_flags=(feature,)))
    register_am_allocators(args, worker)
    return worker, xp


class _Transfers:
    """The sends and receives of one end: how many are under way, and what failed first.

    An exception of a callback would only be logged, and a receive is not told that the peer is gone: either
    way its end would be waited for in vain.
    """

    def __init__(self, ep: ucx_api.UCXEndpoint, enable_am: bool) -> None:
        self.outstanding = 0
        self._ep = ep
        self._enable_am = enable_am
        self._failure: Exception | None = None
        self._peer_is_gone = False
        ep.set_close_callback(self._note_close)

    def _note_close(self) -> None:
        self._peer_is_gone = True

    def send(self, message: Any) -> None:
        """Post a send; `message` is kept until it ends."""
        message = asarray(message)
        self.outstanding += 1

        def sent(_request: Any, exception: Exception | None) -> None:
            self._end(message, exception)

        if self._enable_am:
            request = ucx_api.am_send_nbx(self._ep, message, message.nbytes, sent)
        else:
            request = ucx_api.tag_send_nb(self._ep, message, message.nbytes, _TAG, sent)
        if request is None:
            self.outstanding -= 1

    def recv(self, into: Any, then: Callable[[Any], None] | None = None) -> None:
        """Post a receive, after which `then(message)` is called. An active message comes into memory of its own."""
        self.outstanding += 1

        def received(message: Any, exception: Exception | None) -> None:
            self._end(message, exception, then)

        if self._enable_am:
            ucx_api.am_recv_nb(self._ep, received)
            return
        into = asarray(into)

        def tag_received(_request: Any, exception: Exception | None) -> None:
            received(into, exception)

        ucx_api.tag_recv_nb(self._ep.worker, into, into.nbytes, _TAG, tag_received, ep=self._ep)

    def _end(self, message: Any, exception: Exception | None, then: Callable[[Any], None] | None = None) -> None:
        try:
            if exception is None and then is not None:
                then(message)
        except Exception as e:
            exception = e
        self._failure = self._failure or exception
        self.outstanding -= 1

    def wait(self, most: int = 0) -> None:
        """Make progress until no more than `most` are under way."""
        while self.outstanding > most and self._failure is None:
            last = self._peer_is_gone  # what it sent before has come: this is enough to take it
            self._ep.worker.progress()
            if last and self.outstanding > most:
                raise self._failure or UCXCloseError("the peer is gone")
        if self._failure is not None:
            raise self._failure


class UCXPyCoreServer(BaseServer):
    """Has all receives posted before the first message comes, and echoes from their callbacks."""

    has_cuda_support = True

    def run(self) -> None:
        args = self.args
        worker, xp = _prepare(args)
        requests: list[int] = []
        listener = ucx_api.UCXListener(worker, args.port or 0, requests.append)
        self.queue.put(listener.port)
        while not requests:
            worker.progress()
        ep = ucx_api.UCXEndpoint.create_from_conn_request(worker, requests[0], args.error_handling)
        self._echo(ep, xp)
        ep.close()
        listener.close()

    def _echo(self, ep: ucx_api.UCXEndpoint, xp: Any) -> None:
        args = self.args
        transfers = _Transfers(ep, args.enable_am)
        transfers.recv(bytearray(len(WireupMessage)), transfers.send)
        into = None
        for _ in range(args.n_iter + args.n_warmup_iter):
            if not args.enable_am and (into is None or not args.reuse_alloc):
                into = Array(xp.zeros(args.n_bytes, dtype="u1"))
            transfers.recv(into, transfers.send)
        transfers.wait()


class UCXPyCoreClient(BaseClient):
    """Waits for each send and receive; with --delay-progress only where too many are under way."""

    has_cuda_support = True

    def run(self) -> None:
        args = self.args
        worker, xp = _prepare(args)
        ep = ucx_api.UCXEndpoint.create(worker, self.server_address, self.port, args.error_handling)
        transfers = _Transfers(ep, args.enable_am)
        # The first messages of a connection also choose its transports; they would count for the first round.
        transfers.send(WireupMessage)
        transfers.recv(bytearray(len(WireupMessage)))
        transfers.wait()
        if args.cuda_profile:
            xp.cuda.profiler.start()
        times = self._measure(transfers, xp)
        if args.cuda_profile:
            xp.cuda.profiler.stop()
        ep.close()
        self.queue.put(times[args.n_warmup_iter :])

    def _measure(self, transfers: _Transfers, xp: Any) -> list[float]:
        args = self.args
        out = Array(xp.ones(args.n_bytes, dtype="u1"))
        into = None
        times = []
        for _ in range(args.n_iter + args.n_warmup_iter):
            start = time.monotonic()
            if not args.enable_am and (into is None or not args.reuse_alloc):
                into = Array(xp.zeros(args.n_bytes, dtype="u1"))
            for post, message in ((transfers.send, out), (transfers.recv, into)):
                if args.delay_progress:
                    transfers.wait(max(args.max_outstanding - 1, 0))
                    post(message)
                else:
                    post(message)
                    transfers.wait()
            times.append(time.monotonic() - start)
        transfers.wait()
        return times

    def print_backend_specific_config(self) -> None:
        print_key_value("Transfer API", "AM" if self.args.enable_am else "TAG")
        delay = f"True ({self.args.max_outstanding})" if self.args.delay_progress else "False"
        print_key_value("Delay progress", delay)
        print_ucx_config()
