"""The page /hawser of a worker's dashboard: what it fetched, from whom, how fast, on what."""

from __future__ import annotations

from typing import Any

from bokeh.layouts import column
from bokeh.models import ColumnDataSource, DataTable, TableColumn
from bokeh.plotting import figure

from ._transfers import incoming, summary

_PALETTE = [
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
]
_COLUMNS = {
    "source": "from",
    "transport": "transport",
    "transfers": "transfers",
    "MB": "MB",
    "seconds": "seconds",
    "MB_s": "median MB/s",
}


class Transfers:
    """A plot of each transfer's rate over time and a table of the peers."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker
        self.points = ColumnDataSource({"time": [], "MB_s": [], "color": [], "peer": []})
        self.peers = ColumnDataSource({name: [] for name in _COLUMNS})
        plot = figure(
            title="Fetched from other workers",
            x_axis_type="datetime",
            y_axis_type="log",
            y_axis_label="MB/s",
            height=300,
            sizing_mode="stretch_width",
        )
        plot.scatter("time", "MB_s", color="color", legend_group="peer", source=self.points)
        table = DataTable(
            source=self.peers,
            columns=[TableColumn(field=field, title=title) for field, title in _COLUMNS.items()],
            sizing_mode="stretch_width",
        )
        self.root = column(plot, table, sizing_mode="stretch_width")

    def update(self) -> None:
        points: dict[str, list[Any]] = {"time": [], "MB_s": [], "color": [], "peer": []}
        rows: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        for i, (peer, transport, transfers) in enumerate(incoming(self.worker)):
            for when, n, seconds in transfers:
                points["time"].append(when * 1000)
                points["MB_s"].append(n / seconds / 1e6)
                points["color"].append(_PALETTE[i % len(_PALETTE)])
                points["peer"].append(peer)
            pair = summary(peer, self.worker.address, transport, transfers)
            row = (peer, transport, pair.transfers, pair.bytes / 1e6, pair.seconds, pair.quartiles[1] / 1e6)
            for name, value in zip(_COLUMNS, row, strict=True):
                rows[name].append(round(value, 3) if isinstance(value, float) else value)
        self.points.data = points
        self.peers.data = rows


def transfers_doc(worker: Any, extra: dict[str, Any], doc: Any) -> None:
    """Makes the page's document."""
    page = Transfers(worker)
    page.update()
    doc.title = "Hawser: transfers"
    doc.add_root(page.root)
    doc.add_periodic_callback(page.update, 1000)
