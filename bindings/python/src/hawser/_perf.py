"""python -m hawser perf: round trips between two processes on this machine."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import sys
import time
from collections.abc import Iterator
from typing import Any

from ._perf_peers import PEERS, installed

_FIRST_ROUNDS = 4
_END_SECONDS = 10.0


class _End:
    """One end's side of the pipe to the program that measures (hawser._perf_peers.Link)."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def tell_port(self, port: int) -> None:
        self._pipe.send(port)

    def port(self) -> int:
        return int(self._pipe.recv())

    def rounds(self) -> tuple[int, int] | None:
        task: tuple[int, int] | None = self._pipe.recv()
        self._start = time.perf_counter()
        return task

    def done(self) -> None:
        self._pipe.send(time.perf_counter() - self._start)


def _run_end(name: str, pipe: Any, first: bool) -> None:
    PEERS[name][0](_End(pipe), first)


class _Pair:
    """Two processes that exchange messages by one peer."""

    def __init__(self, name: str) -> None:
        mp = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for first in (False, True):
            here, there = mp.Pipe()
            process = mp.Process(target=_run_end, args=(name, there, first), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        self._pipes[1].send(self._pipes[0].recv())

    def seconds(self, size: int, rounds: int) -> float:
        """How long so many round trips take the connecting end."""
        for pipe in self._pipes:
            pipe.send((size, rounds))
        took = [pipe.recv() for pipe in self._pipes]
        return float(took[1])

    def close(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self._processes:
            process.join(_END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()


def _half_round_trip(pair: _Pair, size: int, seconds: float) -> float:
    """The time of a message one way, over about so many seconds."""
    rounds = _FIRST_ROUNDS
    while (took := pair.seconds(size, rounds)) < seconds / 10:
        rounds *= 4
    count = max(1, round(rounds * seconds / took))
    return pair.seconds(size, count) / count / 2


# ---- Progress ----


@contextlib.contextmanager
def _bar(total: int) -> Iterator[Any]:
    """A progress bar of rich, or of tqdm, or none: gives advance(what)."""
    if not sys.stderr.isatty():
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
                pair = _Pair(name)
                times = []
                for size in sizes:
                    advance(f"{name}, {size} bytes")
                    times.append(_half_round_trip(pair, size, seconds))
                results[name] = times
            except (EOFError, OSError) as e:
                print(f"{name} failed: {e or 'an end is gone'}", file=sys.stderr)
            finally:
                if pair is not None:
                    pair.close()
    return results


def _table(results: dict[str, list[float]], sizes: list[int]) -> None:
    print(f"{'bytes':>12}" + "".join(f" {name + ' us':>12} {'MB/s':>9}" for name in results))
    for i, size in enumerate(sizes):
        cells = (f" {times[i] * 1e6:12.2f} {size / times[i] / 1e6:9.1f}" for times in results.values())
        print(f"{size:12}" + "".join(cells), flush=True)


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
    names = args.peers or (found if args.plot else ["hawser"])
    for name in names:
        if name not in found:
            print(next((m for m in missing if m.startswith(f"{name}:")), f"{name}: no such peer"), file=sys.stderr)
            return 2
    if args.plot:
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            print("--plot needs matplotlib: pip install hawser-ucx[bench]", file=sys.stderr)
            return 2
        for reason in [] if args.peers else missing:
            print(f"left out: {reason}", file=sys.stderr)
    results = _sweep(names, args.sizes, args.seconds)
    if not results:
        return 1
    _table(results, args.sizes)
    if args.plot:
        _plot(results, args.sizes, args.plot)
        print(f"plot: {args.plot}")
    return 0
