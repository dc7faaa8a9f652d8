"""Messages between two endpoints of one worker, by UCXX's core: python -m hawser.ucxx.examples.basic --help"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Sequence
from typing import Any

import numpy as np

from hawser.ucxx._lib import libucxx as ucx_api
from hawser.ucxx._lib.arr import Array
from hawser.ucxx._lib.libucxx import UCXXTag

_SIZES = (50, 500, 50_000)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The options of UCXX's example."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--asyncio-wait-future", action="store_true", help="await UCXRequest.future")
    how.add_argument("--asyncio-wait-yield", action="store_true", help="await UCXRequest.wait_yield()")
    add("-m", "--progress-mode", default="thread", choices=["thread", "blocking"], help="who makes progress (thread)")
    add("-o", "--object-type", default="numpy", choices=["numpy", "rmm"], help="what is sent (numpy); rmm needs cupy")
    add("--multi-buffer-transfer", action="store_true", help="send all of it as one multi-buffer message")
    add("-p", "--port", default=12345, type=int, help="where to listen (12345), 0: at any free port")
    return parser.parse_args(argv)


def _arrays_of_rmm() -> Any:
    try:
        import cupy  # type: ignore[import-not-found, unused-ignore]
        import rmm  # type: ignore[import-not-found, unused-ignore]
        from rmm.allocators.cupy import rmm_cupy_allocator  # type: ignore[import-not-found, unused-ignore]
    except ImportError as e:
        raise SystemExit(f"--object-type rmm needs cupy and rmm: {e}") from None

    rmm.reinitialize(pool_allocator=True, managed_memory=False)
    cupy.cuda.set_allocator(rmm_cupy_allocator)
    return cupy


async def _all(waited: Sequence[Awaitable[Any]]) -> None:
    await asyncio.gather(*waited)


class Example:
    """A worker, connected with itself."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.worker = ucx_api.UCXWorker(ucx_api.UCXContext())
        if args.progress_mode == "blocking":
            self.worker.init_blocking_progress_mode()
        else:
            self.worker.start_progress_thread()
        came: list[ucx_api.UCXEndpoint] = []
        self.listener: ucx_api.UCXListener = ucx_api.UCXListener.create(
            self.worker,
            args.port,
            lambda request: came.append(self.listener.create_endpoint_from_conn_request(request, True)),
        )
        self.client = ucx_api.UCXEndpoint.create(
            self.worker, "127.0.0.1", self.listener.port, endpoint_error_handling=True
        )
        while not came:
            self.progress()
        self.server = came[0]

    def progress(self) -> None:
        """Make progress, or let the thread do it."""
        if self.args.progress_mode == "blocking":
            self.worker.progress_worker_event()
        else:
            time.sleep(0)

    def wait(self, *requests: ucx_api.UCXRequest) -> None:
        """Wait for all of them; raises what one of them failed with."""
        if self.args.asyncio_wait_future:
            asyncio.run(_all([request.future for request in requests]))
        elif self.args.asyncio_wait_yield:
            asyncio.run(_all([request.wait_yield() for request in requests]))
        while not all(request.completed for request in requests):
            self.progress()
        for request in requests:
            request.check_error()

    def exchange(self, arrays: list[Any]) -> list[Any]:
        """Send them from the server to the client; gives what came."""
        frames = tuple(map(Array, arrays))
        if self.args.multi_buffer_transfer:
            whole = self.client.tag_recv_multi(UCXXTag(0))
            self.wait(self.server.tag_send_multi(frames, UCXXTag(0)), whole)
            return whole.py_buffers
        into = [np.empty(array.nbytes, "u1") for array in arrays]
        self.wait(
            *(self.server.tag_send(frame, UCXXTag(tag)) for tag, frame in enumerate(frames)),
            *(self.client.tag_recv(Array(array), UCXXTag(tag)) for tag, array in enumerate(into)),
        )
        return into

    def close(self) -> None:
        """Close the connection, and end the thread."""
        for endpoint in (self.client, self.server):
            endpoint.close_blocking()
        self.listener.close()
        if self.args.progress_mode == "thread":
            self.worker.stop_progress_thread()


def main(argv: list[str] | None = None) -> None:
    """Send arrays and compare what came."""
    args = parse_args(argv)
    xp: Any = np if args.object_type == "numpy" else _arrays_of_rmm()
    sent = [xp.arange(n).astype("u1") for n in _SIZES]
    example = Example(args)
    for came, array in zip(example.exchange(sent), sent, strict=True):
        xp.testing.assert_array_equal(xp.asarray(came), array)
    example.close()
    print(f"{len(sent)} arrays came as they were sent: {', '.join(map(str, _SIZES))} bytes")


if __name__ == "__main__":
    main()
