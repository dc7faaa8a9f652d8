"""Where the description and its schema are: beside this package in the source tree, inside it when it is installed."""

from __future__ import annotations

from pathlib import Path


def published(name: str) -> Path:
    inside = Path(__file__).resolve().parent / name
    return inside if inside.exists() else inside.parents[1] / name
