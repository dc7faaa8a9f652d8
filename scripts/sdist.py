#!/usr/bin/env python3
"""Makes the source distribution of hawser-ucx: sdist.py FOLDER.

It is bindings/python with the sources of libhawser in it, as libhawser/, so it builds anywhere. Uses scikit-build-core.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from scikit_build_core.build import build_sdist

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "bindings" / "python"
# What bindings/python/CMakeLists.txt uses of the tree around it.
LIBRARY = [
    "CMakeLists.txt",
    "LICENSE",
    "abi/CMakeLists.txt",
    "abi/errors.def",
    "abi/generated",
    "abi/swig",
    "cmake",
    "core",
    "include",
]
LEFT_OUT = shutil.ignore_patterns("build", "__pycache__", ".*_cache")


def copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=LEFT_OUT)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def main(folder: str) -> None:
    out = Path(folder).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        stage = Path(temporary) / "hawser-ucx"
        copy(PYTHON, stage)
        for name in LIBRARY:
            copy(ROOT / name, stage / "libhawser" / name)
        os.chdir(stage)
        print(out / build_sdist(str(out)))


if __name__ == "__main__":
    main(*sys.argv[1:])
