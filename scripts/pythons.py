#!/usr/bin/env python3
"""Runs the Python binding's tests on each CPython that is here: pythons.py --build build [--python FOLDER/python3 ...]

The one abi3 wheel, built by this Python with the library of the build, is installed into an environment for each,
beside what the tests need. Without --python: every python3.N from 3.11 on that is in PATH or among pyenv's versions.
Dask's clusters are left to the tests of one interpreter. Exits with 1 if tests failed on any.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "bindings" / "python" / "tests"
OLDEST = (3, 11)


def version(python: Path) -> tuple[int, int]:
    said = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
    numbers = said.stdout.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else (0, 0)


def interpreters() -> list[Path]:
    """One of each version, newest last."""
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob("versions/*/bin"))
    found: dict[tuple[int, int], Path] = {}
    for file in (file for folder in folders for file in sorted(folder.glob("python3.*"))):
        # A shim of pyenv may name a version that its directory does not choose.
        if re.fullmatch(r"python3\.\d+", file.name) and (number := version(file)) >= OLDEST:
            found.setdefault(number, file)
    return [found[number] for number in sorted(found)]


def wheel(build: Path, folder: Path) -> Path:
    library = (build / "libhawser.so").resolve()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    pip += ["--no-build-isolation", "-w", str(folder), f"--config-settings=cmake.define.HAWSER_PREBUILT={library}"]
    subprocess.run([*pip, str(ROOT / "bindings" / "python")], check=True)
    subprocess.run([*pip[:-1], str(ROOT / "bindings" / "python" / "ucp")], check=True)
    (found,) = folder.glob("hawser_ucx-*-abi3-*.whl")
    return found


def tested(python: Path, build: Path, wheels: Path) -> bool:
    folder = build / "pythons" / python.name
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    own = str(folder / "bin" / "python")
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(ROOT / "scripts" / "requirements.txt")], check=True)
    subprocess.run([*pip, "--no-index", "--no-deps", *map(str, wheels.glob("*.whl"))], check=True)
    stubs = {f"HAWSER_{name.upper()}": str(build / "tests" / f"lib{name}.so") for name in ("stub_cuda", "stub_late")}
    stubs["HAWSER_STUB_CUDA_INCOMPLETE"] = str(build / "tests" / "libstub_cuda_incomplete.so")
    environment = os.environ | stubs | {"HAWSER_SOURCE_DIR": str(ROOT), "HAWSER_BUILD_DIR": str(build)}
    environment["PATH"] = f"{folder / 'bin'}{os.pathsep}{environment['PATH']}"
    command = [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--ignore", str(TESTS / "dask"), str(TESTS)]
    print(f"== {python}", flush=True)
    return subprocess.run(command, cwd=TESTS.parent, env=environment).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--python", type=Path, action="append")
    args = parser.parse_args()
    build = args.build.resolve()
    wheels = build / "pythons" / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    wheels.mkdir(parents=True)
    print(f"wheel: {wheel(build, wheels).name}", flush=True)
    results = {str(python): tested(python, build, wheels) for python in args.python or interpreters()}
    for python, passed in results.items():
        print(f"{'passed' if passed else 'FAILED'}: {python}")
    return 0 if results and all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
