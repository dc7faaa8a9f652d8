#!/bin/bash
# TIMEOUT: 120
# Python outside bindings/python, whose own tests look after it.
set -euo pipefail

cd "$HAWSER_SOURCE_DIR"
have() { "$HAWSER_PYTHON" -m "$1" --version >/dev/null 2>&1; }
for tool in ruff mypy; do
    have $tool || { echo "SKIP: $tool is not installed: scripts/setup.sh puts it into .venv"; exit 77; }
done
styled=(abi abi/hawser-bindgen scripts examples bench tests)
status=0
"$HAWSER_PYTHON" -m ruff check --no-cache --quiet "${styled[@]}" || status=1
"$HAWSER_PYTHON" -m ruff format --no-cache --diff --quiet "${styled[@]}" || status=1
# Programs of their own; a module's name is looked up in the folders of MYPYPATH.
check() { "$HAWSER_PYTHON" -m mypy --cache-dir "$HAWSER_BUILD_DIR/mypy" "$@" || status=1; }
check abi abi/hawser-bindgen
check scripts/*.py
MYPYPATH=abi:tests/abi check tests/abi/*.py examples/bindgen/go/*.py
exit $status
