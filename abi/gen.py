#!/usr/bin/env python3
"""
Makes everything that is generated from include/hawser.h and abi/errors.def: abi/abi.json and all bindings' layers.

    python3 abi/gen.py            write what has changed
    python3 abi/gen.py --check    write nothing; 1 if anything is not what it should be

It needs pycparser and jsonschema, which scripts/setup.sh puts into .venv: that environment is used if it is there.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def use_environment() -> None:
    """Go on in .venv's Python when this one lacks the libraries."""
    python = ROOT / ".venv" / "bin" / "python"
    if any(importlib.util.find_spec(name) is None for name in ("jsonschema", "pycparser")):
        if python.exists() and Path(sys.prefix) != ROOT / ".venv":
            os.execv(python, [str(python), *sys.argv])
        sys.exit("gen.py: pycparser and jsonschema are not installed here: run scripts/setup.sh")


if __name__ == "__main__":
    use_environment()
    sys.path.insert(0, str(ROOT / "abi"))
    from hawser_bindgen.generate import main

    sys.exit(main(ROOT, sys.argv[1:]))
