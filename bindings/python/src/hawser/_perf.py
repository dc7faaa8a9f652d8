"""python -m hawser perf: round trips between two processes on this machine."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ._perf_pair import Pair
from ._perf_peers import installed

# ---- Progress ----


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Any]:
    """A progress bar of rich, or of tqdm, or none: gives advance(what)."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda what: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        pass
    else:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("", total=total)
            yield lambda what: progress.update(task, advance=1, description=what)
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda what: print(what, file=sys.stderr)
        return
    with tqdm(total=total, leave=False) as bar:

        def advance(what: str) -> None:
            bar.set_description(what)
            bar.update()

        yield advance


# ---- Results ----


def _sweep(names: list[str], sizes: list[int], seconds: float) -> dict[str, list[float]]:
    """Seconds one way by peer and size; a peer that fails is named and left out."""
    results: dict[str, list[float]] = {}
    with _bar(len(names) * len(sizes)) as advance:
        for name in names:
            pair = None
            try:
                pair = Pair(name)
                times = []
                for size in sizes:
                    advance(f"{name}, {size} bytes")
                    times.append(pair.half_round_trip(size, seconds))
                results[name] = times
            except (EOFError, OSError) as e:
                print(f"{name} failed: {str(e) or 'an end is gone'}", file=sys.stderr)
            except KeyboardInterrupt:
                if pair is not None:
                    pair.kill()
                raise
            finally:
                if pair is not None:
                    pair.close()
    return results


def _table(results: dict[str, list[float]], sizes: list[int]) -> None:
    print(f"{'bytes':>12}" + "".join(f" {name + ' us':>12} {'MB/s':>9}" for name in results))
    for i, size in enumerate(sizes):
        cells = (f" {times[i] * 1e6:12.2f} {size / times[i] / 1e6:9.1f}" for times in results.values())
        print(f"{size:12}" + "".join(cells), flush=True)


def _unfit(path: str) -> str:
    """Why no plot can be written to a file; "" if it can. To be asked before anything is measured."""
    from matplotlib.figure import Figure

    suffix = Path(path).suffix.lower().removeprefix(".") or "png"
    known = Figure().canvas.get_supported_filetypes()
    if suffix not in known:
        return f"{path}: no format of plots; known are {', '.join(sorted(known))}"
    directory = Path(path).absolute().parent
    if Path(path).is_dir() or not os.access(path if Path(path).exists() else directory, os.W_OK):
        return f"{path}: cannot be written"
    return ""


def _plot(results: dict[str, list[float]], sizes: list[int], path: str) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (latency, bandwidth) = pyplot.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for name, times in results.items():
        style = {"marker": "o", "markersize": 3, "linewidth": 2.5 if name == "hawser" else 1.2}
        latency.loglog(sizes, [t * 1e6 for t in times], label=name, **style)
        bandwidth.loglog(sizes, [size / t / 1e6 for size, t in zip(sizes, times, strict=True)], label=name, **style)
    for axes, text in ((latency, "half a round trip, us"), (bandwidth, "bandwidth of round trips, MB/s")):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("bytes")
        axes.set_ylabel(text)
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend()
    figure.suptitle("Two processes on this machine")
    figure.savefig(path)
    pyplot.close(figure)


def perf(args: argparse.Namespace) -> int:
    """Half a round trip between two processes on this machine, for each size; --plot: against others."""
    found, missing = installed()
    draws = args.plot is not None
    names = args.peers or (found if draws else ["hawser"])
    for name in names:
        if name not in found:
            print(next((m for m in missing if m.startswith(f"{name}:")), f"{name}: no such peer"), file=sys.stderr)
            return 2
    if draws:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            print("--plot needs matplotlib: pip install hawser-ucx[bench]", file=sys.stderr)
            return 2
        if unfit := _unfit(args.plot):
            print(unfit, file=sys.stderr)
            return 2
        for reason in [] if args.peers else missing:
            print(f"left out: {reason}", file=sys.stderr)
    results = _sweep(names, args.sizes, args.seconds)
    if not results:
        return 1
    _table(results, args.sizes)
    if draws:
        _plot(results, args.sizes, args.plot)
        print(f"plot: {args.plot}")
    return 0
