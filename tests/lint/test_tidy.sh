#!/bin/bash
# TIMEOUT: 900
set -euo pipefail

command -v clang-tidy >/dev/null || { echo "SKIP: clang-tidy is not installed"; exit 77; }
cd "$HAWSER_SOURCE_DIR"
folders=()
for folder in core tools examples; do
    [ -d $folder ] && folders+=($folder)
done
# The analyzer takes nearly all the time. With a third of the states that it looks at by itself it takes half; `make test-all`
# has it look at all of them.
depth=()
[ "${HAWSER_TEST_ALL:-0}" = 1 ] || for word in -Xclang -analyzer-config -Xclang max-nodes=75000; do depth+=(--extra-arg=$word); done
# A finding that no rule names is not one: output stays empty unless something is wrong.
find "${folders[@]}" -name '*.c' -print0 | sort -z |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$HAWSER_BUILD_DIR" --quiet "${depth[@]}" --extra-arg=-Wno-ignored-optimization-argument --warnings-as-errors='*' 2> >(grep -v 'warnings generated\|^Suppressed\|^Use -header' >&2)
