"""Plots as SVG, so that a report is one file and needs nothing installed."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence

STYLE = """body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}
td,th{padding:2px 8px;text-align:right}svg text{font:11px sans-serif}"""
COLORS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"]


def page(title: str, parts: Sequence[str]) -> str:
    """A whole document."""
    head = f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title><style>{STYLE}</style>"
    return f"{head}<h1>{html.escape(title)}</h1>{''.join(parts)}"


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def heat_map(names: Sequence[str], values: Mapping[tuple[str, str], float], unit: str) -> str:
    """values by (row, column); the colour is logarithmic, pairs without a value stay white."""
    cell, left, top = 46, 200, 30
    low, high = (min(values.values(), default=1), max(values.values(), default=1))
    span = math.log(high / low) if high > low > 0 else 1.0
    out = []
    for i, name in enumerate(names):
        out.append(_text(left - 6, top + i * cell + cell / 2 + 4, f"{i}  {name}", "end"))
        out.append(_text(left + i * cell + cell / 2, top - 8, str(i), "middle"))
    for (row, column), value in values.items():
        x, y = left + names.index(column) * cell, top + names.index(row) * cell
        share = math.log(value / low) / span if value > 0 and high > low else 1.0
        color = f"hsl(210,70%,{92 - 47 * share:.0f}%)"
        title = html.escape(f"{row} to {column}: {value:.0f} {unit}")
        out.append(f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" fill="{color}"><title>{title}</title></rect>')
        out.append(_text(x + cell / 2, y + cell / 2 + 4, f"{value:.0f}", "middle"))
    size = len(names) * cell
    return f'<svg width="{left + size + 10}" height="{top + size + 10}">{"".join(out)}</svg>'


def over_time(series: Mapping[str, Sequence[tuple[float, float]]], unit: str) -> str:
    """A point for each (time, value), a colour for each name; the values' axis is logarithmic."""
    width, height, left, top = 800, 280, 60, 14
    points = [p for values in series.values() for p in values]
    if not points:
        return ""
    start, end = min(t for t, _ in points), max(t for t, _ in points)
    values = [v for _, v in points if v > 0] or [1.0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    out = [_text(left - 6, top - 2, unit, "end"), _text(left + width, top + height + 16, f"{end - start:.1f} s", "end")]
    for power in range(low, high + 1):
        y = top + height * (high - power) / (high - low)
        out.append(f'<line x1="{left}" x2="{left + width}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(_text(left - 6, y + 4, f"{10.0**power:g}", "end"))
    for i, (name, samples) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        for when, value in samples:
            x = left + width * (when - start) / ((end - start) or 1)
            y = top + height * (high - math.log10(max(value, 10.0**low))) / (high - low)
            out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
        y = top + height + 34 + 16 * i
        out.append(f'<circle cx="{left}" cy="{y - 4}" r="4" fill="{color}"/>' + _text(left + 8, y, name))
    return f'<svg width="{left + width + 20}" height="{top + height + 40 + 16 * len(series)}">{"".join(out)}</svg>'
