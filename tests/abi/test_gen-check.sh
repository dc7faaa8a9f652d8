#!/bin/bash
# TIMEOUT: 120
# Everything that is generated from the header is what it would be if it were generated now; a tree where it is not, and a
# header outside the dialect, are refused.
set -euo pipefail

gen() { "$HAWSER_PYTHON" "$HAWSER_SOURCE_DIR/abi/gen.py" --check "$@"; }
gen

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$HAWSER_SOURCE_DIR"
cp --parents -r include abi bindings/lua bindings/python/src bindings/rust-sys/src bindings/rust-sys/tests docs/man docs/reference "$work"
refused() { # refused CODE TEXT: of the changed copy
    local code=0
    gen --root "$work" >"$work/out" 2>&1 || code=$?
    [ $code = "$1" ] && grep -q "$2" "$work/out" || { echo "FAIL: wanted $1 and '$2', got $code:"; cat "$work/out"; exit 1; }
}
gen --root "$work" >/dev/null || { echo "FAIL: the copy is not accepted as it is"; exit 1; }
sed -i 's/^#define HWS_LOG_TRACE 5$/#define HWS_LOG_TRACE 6/' "$work/include/hawser.h"
refused 1 '^FAIL: [0-9]* generated files are not up to date'
for generated in abi/abi.json bindings/rust-sys/src/bindings.rs bindings/lua/hawser/cdef.lua docs/reference/constants.md; do
    grep -q "^--- $generated" "$work/out" || { echo "FAIL: the difference in $generated is not shown"; exit 1; }
done
line=$(grep -n '^#define HWS_LOG_TRACE' "$work/include/hawser.h" | cut -d : -f 1)
sed -i "${line}s/6/(1 + 5)/" "$work/include/hawser.h"
refused 2 "^include/hawser.h:$line: "
