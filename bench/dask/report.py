"""The benchmark's figures as one HTML file."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from dask.distributed import Client
from hawser.dask import _report, bandwidths

COLORS = {"tcp": "#7f7f7f", "ucx": "#1f77b4", "ucxx": "#ff7f0e"}


def bars(results: list[dict[str, Any]]) -> str:
    """Each case's median beside tcp's, which is 1; the lines are the fastest and the slowest round."""
    base = {line["case"]: line["seconds"] for line in results if line["protocol"] == "tcp"}
    rows = [line for line in results if line["case"] in base]
    longest = max((line["max"] / base[line["case"]] for line in rows), default=1.0)
    left, width, row = 240, 560, 18
    out, last = [], None
    for i, line in enumerate(rows):
        y, scale = i * row + 16, width / longest / base[line["case"]]
        if line["case"] != last:
            last = line["case"]
            out.append(f'<text x="0" y="{y + 12}">{html.escape(last)}</text>')
        length, low, high = (line[key] * scale for key in ("seconds", "min", "max"))
        out.append(f'<text x="{left - 6}" y="{y + 12}" text-anchor="end">{line["protocol"]}</text>')
        color = COLORS.get(line["protocol"], "#000")
        out.append(f'<rect x="{left}" y="{y + 2}" width="{length:.1f}" height="{row - 5}" fill="{color}"/>')
        middle = y + row / 2
        out.append(f'<line x1="{left + low:.1f}" x2="{left + high:.1f}" y1="{middle}" y2="{middle}" stroke="#000"/>')
        text = f"{line['seconds']:.4g} s" + (f", {line['GB_s']} GB/s" if "GB_s" in line else "")
        out.append(f'<text x="{left + max(length, high) + 6:.1f}" y="{y + 12}">{text}</text>')
    one = left + width / longest
    out.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="10" y2="{len(rows) * row + 16}" stroke="#c00"/>')
    return f'<svg width="{left + width + 200}" height="{len(rows) * row + 24}">{"".join(out)}</svg>'


def table(results: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for line in results for name in line if name != "bench"))
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    cells = ("".join(f"<td>{html.escape(str(line.get(name, '')))}</td>" for name in names) for line in results)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def write(path: str, results: list[dict[str, Any]], clients: dict[str, Client]) -> None:
    parts = ["<p>Time beside tcp's median (red); shorter is better.</p>", bars(results), table(results)]
    for name, client in clients.items():
        found = bandwidths(client, minimum=1 << 20)
        parts += [f"<h2>{name}: MB/s between workers</h2>", found.heat_map(), found.over_time()]
    Path(path).write_text(_report.page("Dask over " + ", ".join(clients), parts), encoding="utf-8")
