"""What workers fetched from each other, as a table."""

from __future__ import annotations

import dataclasses
import html
import statistics
from collections.abc import Iterator
from typing import Any

from distributed import Client


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


def _transport(worker: Any, peer: str) -> str:
    """How this worker's connections to a peer travel: UCX's name where Hawser carries them, else the scheme."""
    comms = [*worker.rpc.available.get(peer, ()), *worker.rpc.occupied.get(peer, ())]
    names = {getattr(comm, "transport", "") for comm in comms if not comm.closed()} - {""}
    return "+".join(sorted(names)) or peer.split("://")[0]


def _incoming(dask_worker: Any) -> list[tuple[str, str, list[tuple[int, float]]]]:
    """Runs on a worker: for each peer the transport and the bytes and seconds of each transfer."""
    found: dict[str, list[tuple[int, float]]] = {}
    for entry in dask_worker.transfer_incoming_log:
        found.setdefault(entry["who"], []).append((int(entry["total"]), float(entry["duration"])))
    return [(who, _transport(dask_worker, who), transfers) for who, transfers in found.items()]


def bandwidths(client: Client, minimum: int = 0) -> Bandwidths:
    """What the workers of a cluster fetched from each other so far, as far back as their logs reach: the last
    `distributed.admin.low-level-log-length` transfers into each.

    minimum: leave out transfers of fewer bytes, which say more about latency. Any protocol.
    """
    pairs = []
    for destination, peers in client.run(_incoming).items():
        for source, transport, transfers in peers:
            kept = [(n, seconds) for n, seconds in transfers if n >= minimum]
            if not kept:
                continue
            rates = [n / seconds for n, seconds in kept]
            quartiles = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else rates * 3
            pairs.append(
                Pair(
                    source,
                    destination,
                    transport,
                    len(kept),
                    sum(n for n, _ in kept),
                    sum(seconds for _, seconds in kept),
                    (quartiles[0], quartiles[1], quartiles[2]),
                )
            )
    return Bandwidths(pairs)
