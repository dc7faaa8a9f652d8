"""Round trips between two processes: python -m hawser.ucxx.benchmarks.send_recv --help"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from hawser.ucp.benchmarks import _ends
from hawser.ucxx.benchmarks.backends.asyncio import AsyncioClient, AsyncioServer
from hawser.ucxx.benchmarks.backends.socket import SocketClient, SocketServer
from hawser.ucxx.benchmarks.backends.ucxx_async import UCXPyAsyncClient, UCXPyAsyncServer
from hawser.ucxx.benchmarks.backends.ucxx_core import UCXPyCoreClient, UCXPyCoreServer

_MODES = ("blocking", "polling", "thread", "thread-polling")


def _get_backend_implementation(backend: str) -> dict[str, Any]:
    """The classes of both ends. Raises ValueError for a backend that is unknown, ImportError without tornado."""
    if backend == "tornado":
        from hawser.ucxx.benchmarks.backends.tornado import TornadoClient, TornadoServer

        return {"client": TornadoClient, "server": TornadoServer}
    ends = {
        "ucxx-async": (UCXPyAsyncClient, UCXPyAsyncServer),
        "ucxx-core": (UCXPyCoreClient, UCXPyCoreServer),
        "asyncio": (AsyncioClient, AsyncioServer),
        "socket": (SocketClient, SocketServer),
    }
    if backend not in ends:
        raise ValueError(f"Unknown backend {backend}")
    client, server = ends[backend]
    return {"client": client, "server": server}


server = partial(_ends.serve, _get_backend_implementation)
client = partial(_ends.measure, _get_backend_implementation)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The options of UCXX's benchmark. Raises RuntimeError for some that do not go together."""
    parser = _ends.new_parser()
    add = parser.add_argument
    add("-x", "--n-buffers", default=1, type=int, metavar="N", help="buffers of a message, all of --n-bytes (1)")
    add("-l", "--backend", default="ucxx-async", help="ucxx-async (default), ucxx-core, asyncio, socket or tornado")
    add("--report-gil-contention", action="store_true", help="ucxx-async, asyncio and socket; needs gilknocker")
    add("--progress-mode", default="thread", help="blocking, polling, thread (default) or thread-polling")
    add("--asyncio-wait", action="store_true", help="ucxx-core: await requests; needs a progress mode with a thread")
    args = _ends.parse(parser, argv)
    client = _get_backend_implementation(args.backend)["client"]
    _ends.check(args, client, "ucxx-core", ("ucxx-async", "asyncio", "socket"))
    _check(args)
    return args


def _check(args: argparse.Namespace) -> None:
    if args.rmm_managed_memory and args.object_type != "rmm":
        raise RuntimeError("`--rmm-managed-memory` needs `--object_type=rmm`")
    if args.progress_mode not in _MODES:
        raise RuntimeError(f"Invalid `--progress-mode`: '{args.progress_mode}'")
    if args.asyncio_wait and not args.progress_mode.startswith("thread"):
        raise RuntimeError("`--asyncio-wait` needs `--progress-mode=thread` or `--progress-mode=thread-polling`")
    if args.n_buffers < 1:
        raise RuntimeError("`--n-buffers` must be at least 1")
    if args.n_buffers > 1 and (args.backend != "ucxx-async" or args.enable_am):
        raise RuntimeError("`--n-buffers` needs `--backend=ucxx-async`, without `--enable-am`")


def main() -> None:
    """Run one or both ends."""
    _ends.run_ends(parse_args(), server, client)


if __name__ == "__main__":
    main()
