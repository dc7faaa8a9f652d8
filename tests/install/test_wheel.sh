#!/bin/bash
# The wheel for manylinux_2_28: built with tools from PyPI, its tag proved by auditwheel, used in a clean environment.
# HAWSER_WHEEL_PYTHONS: further interpreters to try the same file with.
# LABELS: soak
# TIMEOUT: 1500
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$HAWSER_PYTHON" -c 'import ssl, urllib.request as u; u.urlopen("https://pypi.org/simple/ziglang/", timeout=20)' 2>/dev/null ||
    [ -e "$HAWSER_SOURCE_DIR/build/wheel/tools/hawser-stamp" ] ||
    { echo "SKIP: the tools come from PyPI, which does not answer"; exit 77; }

wheel=$("$HAWSER_PYTHON" "$HAWSER_SOURCE_DIR/scripts/wheel.py" dist | tail -1)
tools=$HAWSER_SOURCE_DIR/build/wheel/tools/bin
"$tools/auditwheel" show "$wheel" | tee shown
grep -q "manylinux_2_\(17\|2[0-8]\)_$(uname -m)" shown
case $wheel in *-cp311-abi3-manylinux_2_28_"$(uname -m)".whl) ;; *) echo "not the name of an abi3 wheel: $wheel"; exit 1 ;; esac

# Both wheels by their files: neither a package server nor what is installed elsewhere takes part.
for python in "$HAWSER_PYTHON" ${HAWSER_WHEEL_PYTHONS:-}; do
    rm -rf clean
    "$python" -m venv clean
    clean/bin/python -m pip install --quiet --disable-pip-version-check --no-index \
        --find-links dist --find-links "$HAWSER_SOURCE_DIR/build/wheel/files" 'hawser-ucx[ucx]'
    env -u PYTHONPATH -u HAWSER_UCX clean/bin/python "$HAWSER_SOURCE_DIR/tests/install/wheel_pair.py" | tee said
    grep -q "over UCX .* in $folder/clean/" said
    grep -q "hawser in $folder/clean/" said
    # Keys work: libsodium is in the wheel.
    clean/bin/python -c 'import hawser; hawser.Context(psk=bytes(32)).close()'
done
