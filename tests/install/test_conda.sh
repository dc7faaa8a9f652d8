#!/bin/bash
# The recipe for conda: rattler-build's library renders it, its script builds from the files that git knows, and its
# tests pass. The packages it asks of conda-forge come from PyPI and Debian: what is tried is the recipe, not the channel.
# LABELS: soak
# TIMEOUT: 900
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
scripts=$HAWSER_SOURCE_DIR/scripts
git -C "$HAWSER_SOURCE_DIR" rev-parse --git-dir >/dev/null 2>&1 || { echo "SKIP: the sources are no checkout of git"; exit 77; }
"$HAWSER_PYTHON" -m venv renderer
renderer/bin/python -m pip install --quiet --disable-pip-version-check -r "$scripts/requirements-conda.txt" ||
    { echo "SKIP: rattler-build comes from PyPI, which does not answer"; exit 77; }
"$HAWSER_PYTHON" -m venv host
host/bin/python -m pip install --quiet --disable-pip-version-check -c "$scripts/requirements-wheel.txt" scikit-build-core hatchling swig libucx-cu12

git -C "$HAWSER_SOURCE_DIR" ls-files -z | tar -C "$HAWSER_SOURCE_DIR" --null --files-from=- --create --ignore-failed-read |
    { mkdir work; tar -C work --extract; }
renderer/bin/python "$HAWSER_SOURCE_DIR/tests/install/conda_recipe.py" work/packaging/conda/recipe.yaml >rendered.json
pick() { "$HAWSER_PYTHON" -c "import json; r = json.load(open('$folder/rendered.json')); $1"; }
echo "package $(pick 'print(r["package"]["name"], r["package"]["version"])'), built by"

PYTHON=$folder/host/bin/python
PREFIX=$("$PYTHON" -c 'import libucx, pathlib; print(pathlib.Path(libucx.__file__).parent)')
export PYTHON PREFIX CMAKE_BUILD_PARALLEL_LEVEL=2
pick 'print("\n".join(r["build"]["script"]))' >script
cat script
(cd work && env -u PYTHONPATH bash -euo pipefail "$folder/script" >"$folder/built" 2>&1) || { tail -50 built; exit 1; }

# As rattler-build does it: away from the sources.
export PATH=$folder/host/bin:$PATH
pick 'print("\n".join(f"python -c \"import {name}\"" for t in r["tests"] for name in t.get("python", {}).get("imports", [])))' >tests
pick 'print("\n".join(t["script"] for t in r["tests"] if "script" in t))' >>tests
cat tests
env -u PYTHONPATH -u HAWSER_UCX bash -euo pipefail tests | tee said
grep -q "$folder/host/" said # what was imported is what was built
