"""Round trips between two processes: python -m ucp.benchmarks.send_recv --help"""

from __future__ import annotations

import argparse
import importlib.util
from functools import partial
from typing import Any

from hawser.ucp.benchmarks import _ends
from hawser.ucp.benchmarks.backends.ucp_async import UCXPyAsyncClient, UCXPyAsyncServer
from hawser.ucp.benchmarks.backends.ucp_core import UCXPyCoreClient, UCXPyCoreServer


def _get_backend_implementation(backend: str) -> dict[str, Any]:
    """The classes of both ends; None for a backend that is unknown, or not installed."""
    if backend == "ucp-async":
        return {"client": UCXPyAsyncClient, "server": UCXPyAsyncServer}
    if backend == "ucp-core":
        return {"client": UCXPyCoreClient, "server": UCXPyCoreServer}
    if backend == "tornado" and importlib.util.find_spec("tornado") is not None:
        from hawser.ucp.benchmarks.backends.tornado import TornadoClient, TornadoServer

        return {"client": TornadoClient, "server": TornadoServer}
    return {"client": None, "server": None}


server = partial(_ends.serve, _get_backend_implementation)
client = partial(_ends.measure, _get_backend_implementation)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The options of UCX-Py's benchmark. Raises RuntimeError for some that do not go together."""
    parser = _ends.new_parser()
    add = parser.add_argument
    add("-l", "--backend", default="ucp-async", help="ucp-async (default), ucp-core or tornado")
    add("--report-gil-contention", action="store_true", help="ucp-async only; needs gilknocker")
    args = _ends.parse(parser, argv)
    if args.backend not in ("ucp-async", "ucp-core", "tornado"):
        raise RuntimeError(f"Unknown backend {args.backend}")
    client = _get_backend_implementation(args.backend)["client"]
    if client is None:
        raise RuntimeError(f"The backend {args.backend} is not installed")
    _ends.check(args, client, "ucp-core", ("ucp-async",))
    return args


def main() -> None:
    """Run one or both ends."""
    _ends.run_ends(parse_args(), server, client)


if __name__ == "__main__":
    main()
