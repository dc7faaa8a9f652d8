"""The generator as a library, and copies of the tree to try changes on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(os.environ.get("HAWSER_SOURCE_DIR", Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(ROOT / "abi"))

from hawser_bindgen.model import Abi  # noqa: E402
from hawser_bindgen.parse import read_abi  # noqa: E402

HEADER = (ROOT / "include" / "hawser.h").read_text(encoding="utf-8")
ERRORS = (ROOT / "abi" / "errors.def").read_text(encoding="utf-8")


def read(header: str = HEADER, errors: str = ERRORS) -> Abi:
    return read_abi("hawser.h", header, "errors.def", errors)


def change(text: str, old: str, new: str) -> str:
    """The text with one place changed, which must be there exactly once."""
    if text.count(old) != 1:
        raise AssertionError(f"{old!r} stands {text.count(old)} times in the header: give this test another place")
    return text.replace(old, new)
