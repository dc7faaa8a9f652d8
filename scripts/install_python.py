#!/usr/bin/env python3
"""Installs bindings/python and its ucp/ into the environment of this Python: install_python.py LIBHAWSER.

The library is taken as it is, not built again. Package servers are not asked.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "bindings" / "python"


def main(library: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    pip += ["--no-build-isolation", "--no-deps", "--force-reinstall"]
    subprocess.run(
        [*pip, f"--config-settings=cmake.define.HAWSER_PREBUILT={Path(library).resolve()}", str(PYTHON)], check=True
    )
    subprocess.run([*pip, str(PYTHON / "ucp")], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
