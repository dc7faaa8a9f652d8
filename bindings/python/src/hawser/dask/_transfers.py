"""What workers fetched from each other, as a table."""

from __future__ import annotations

import dataclasses
import html
import os
import statistics
from collections.abc import Awaitable, Iterable, Iterator
from pathlib import Path
from typing import Any

from distributed import Client

from . import _report

# When it ended, its bytes, its seconds.
Transfer = tuple[float, int, float]
# What incoming() gives, by worker.
Logs = dict[str, list[tuple[str, str, list[Transfer]]]]


@dataclasses.dataclass(frozen=True)
class Pair:
    """All transfers from one worker to another. Quartiles are of the single transfers' bytes per second, which
    contain serializing and the peer's answer; Dask counts at least 1 ms for each."""

    source: str
    destination: str
    transport: str
    transfers: int
    bytes: int
    seconds: float
    quartiles: tuple[float, float, float]
    samples: tuple[Transfer, ...] = ()


class Bandwidths:
    """The pairs of workers between which data moved, the busiest first; printed as a table."""

    def __init__(self, pairs: list[Pair]) -> None:
        self.pairs = sorted(pairs, key=lambda pair: -pair.bytes)

    def __iter__(self) -> Iterator[Pair]:
        return iter(self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, pair: tuple[str, str]) -> Pair:
        for candidate in self.pairs:
            if (candidate.source, candidate.destination) == pair:
                return candidate
        raise KeyError(pair)

    def heat_map(self) -> str:
        """The median of each pair in MB/s as SVG, a row for each worker that gave."""
        names = sorted({name for pair in self for name in (pair.source, pair.destination)})
        values = {(pair.source, pair.destination): pair.quartiles[1] / 1e6 for pair in self}
        return _report.heat_map(names, values, "MB/s")

    def over_time(self) -> str:
        """Each transfer in MB/s as SVG, a colour for each of the busiest pairs."""
        series = {
            f"{pair.source} to {pair.destination} ({pair.transport})": [
                (when, n / seconds / 1e6) for when, n, seconds in pair.samples
            ]
            for pair in self.pairs[:8]
        }
        return _report.over_time(series, "MB/s")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table, the heat map and the plot over time as one HTML file."""
        parts = [self._repr_html_(), "<h2>Median MB/s</h2>", self.heat_map(), "<h2>Over time</h2>", self.over_time()]
        Path(path).write_text(_report.page("Transfers between workers", parts), encoding="utf-8")

    def _cells(self) -> list[list[str]]:
        head = ["from", "to", "transport", "transfers", "MB", "seconds", "25 %", "50 %", "75 % MB/s"]
        rows = [
            [
                pair.source,
                pair.destination,
                pair.transport,
                str(pair.transfers),
                f"{pair.bytes / 1e6:.1f}",
                f"{pair.seconds:.3f}",
                *(f"{q / 1e6:.0f}" for q in pair.quartiles),
            ]
            for pair in self.pairs
        ]
        return [head, *rows]

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = []
        for row in cells:
            fields = [c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
            lines.append("  ".join(fields).rstrip())
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *rows = ("".join(f"<td>{html.escape(c)}</td>" for c in row) for row in self._cells())
        return f"<table><tr>{head.replace('td>', 'th>')}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _names(comms: Iterable[Any]) -> str:
    return "+".join(sorted({getattr(comm, "transport", "") for comm in comms if not comm.closed()} - {""}))


def _transport(worker: Any, peer: str) -> str:
    """How this worker's connections to a peer travel: UCX's name where Hawser carries them, else the scheme."""
    comms = [*worker.rpc.available.get(peer, ()), *worker.rpc.occupied.get(peer, ())]
    return _names(comms) or peer.split("://")[0]


def transports_in_use(worker: Any) -> str:
    """UCX's names of what a worker's connections travel on now; empty where Hawser carries none."""
    pools = [*worker.rpc.available.values(), *worker.rpc.occupied.values()]
    return _names([worker.batched_stream.comm, *(comm for comms in pools for comm in comms)])


def incoming(dask_worker: Any) -> list[tuple[str, str, list[Transfer]]]:
    """What a worker fetched: for each peer the transport and the transfers."""
    found: dict[str, list[Transfer]] = {}
    for entry in dask_worker.transfer_incoming_log:
        transfer = float(entry["stop"]), int(entry["total"]), float(entry["duration"])
        found.setdefault(entry["who"], []).append(transfer)
    return [(who, _transport(dask_worker, who), transfers) for who, transfers in found.items()]


def summary(source: str, destination: str, transport: str, transfers: list[Transfer]) -> Pair:
    """One line of the table, of at least one transfer."""
    rates = [n / seconds for _, n, seconds in transfers]
    low, middle, high = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
    total, seconds = sum(n for _, n, _ in transfers), sum(seconds for _, _, seconds in transfers)
    return Pair(
        source, destination, transport, len(transfers), total, seconds, (low, middle, high), tuple(sorted(transfers))
    )


def bandwidths(client: Client, minimum: int = 0) -> Any:
    """The Bandwidths of what a cluster's workers fetched from each other, as far back as their logs reach: the last
    `distributed.admin.low-level-log-length` transfers into each.

    minimum: leave out transfers of fewer bytes, which say more about latency. Any protocol. With an asynchronous client
    it is awaited.
    """

    async def later(logs: Awaitable[Logs]) -> Bandwidths:
        return _of_logs(await logs, minimum)

    logs = client.run(incoming)
    return later(logs) if client.asynchronous else _of_logs(logs, minimum)


def _of_logs(logs: Logs, minimum: int) -> Bandwidths:
    pairs = []
    for destination, peers in logs.items():
        for source, transport, transfers in peers:
            if kept := [transfer for transfer in transfers if transfer[1] >= minimum]:
                pairs.append(summary(source, destination, transport, kept))
    return Bandwidths(pairs)
