"""python -m hawser info|perf: what is there, and how fast it is."""

from __future__ import annotations

import argparse
import os
import signal
import sys

import hawser

from ._perf import perf
from ._perf_peers import PEERS


def info(_args: argparse.Namespace) -> int:
    """Versions, the UCX in use, and what UCX sees."""
    found = hawser.library()
    version = found["version"]
    print(f"hawser {version >> 16}.{version >> 8 & 255}.{version & 255}")
    print(f"UCX {found['ucx_major']}.{found['ucx_minor']}.{found['ucx_release']} in {found['ucx_path']}")
    print(f"    {found['ucx_reason']}")
    with hawser.Context() as context:
        print(context.info())
    return 0


def _sizes(text: str) -> list[int]:
    try:
        sizes = [int(n) for n in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"sizes are numbers with commas between, not {text!r}") from None
    if not 0 <= min(sizes) <= max(sizes) <= sys.maxsize:
        raise argparse.ArgumentTypeError("a size is not negative, and fits in memory")
    return sizes


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a time is a number, not {text!r}") from None
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError("a time is above 0 and has an end")
    return seconds


def main(argv: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hawser", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="info|perf")
    commands.add_parser("info", help="versions, the UCX in use, and what UCX sees").set_defaults(run=info)
    add = commands.add_parser("perf", help="latency and bandwidth between two processes here")
    add.add_argument(
        "--sizes",
        type=_sizes,
        default=[8 << 2 * i for i in range(11)],
        help="in bytes, with commas between (8 to 8 Mi)",
    )
    add.add_argument("--seconds", type=_seconds, default=0.5, help="for each size (0.5)")
    add.add_argument("--plot", metavar="FILE", help="draw hawser and every peer that is installed")
    add.add_argument(
        "--peers",
        type=lambda text: text.split(","),
        help=f"which: {', '.join(PEERS)} (hawser; with --plot all)",
    )
    add.set_defaults(run=perf)
    args = parser.parse_args(argv)
    try:
        result: int = args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read has seen enough; nothing can be written at the end either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (hawser.HawserError, OSError) as e:
        print(f"hawser: {e}", file=sys.stderr)
        return 1
    return result


if __name__ == "__main__":
    sys.exit(main())
