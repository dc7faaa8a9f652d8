#!/bin/bash
# The library builds with the headers of either UCX build, and what it asks of a running UCX is the same.
# TIMEOUT: 300
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
built=0
for headers in /usr/include "$HAWSER_WHEEL_LIB/../include"; do
    [ -e "$headers/ucp/api/ucp.h" ] || { echo "SKIP: no UCX headers in $headers: scripts/setup.sh installs them"; continue; }
    build=$folder/build$built
    "$HAWSER_CMAKE" -S "$HAWSER_SOURCE_DIR" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER="$HAWSER_CC" \
        -DHAWSER_UCX_INCLUDE="$headers" -DHAWSER_WERROR=ON -DHAWSER_BUILD_PROGRAM=OFF -DHAWSER_BUILD_BENCH=OFF \
        -DHAWSER_BUILD_EXAMPLES=OFF -DHAWSER_BUILD_SWIG=OFF -DHAWSER_BUILD_TESTS=OFF >"$folder/log" || { cat "$folder/log"; exit 1; }
    "$HAWSER_CMAKE" --build "$build" --target hawser >"$folder/log" || { cat "$folder/log"; exit 1; }
    nm -D --undefined-only "$build/libhawser.so" | sed 's/^ *//' >"$folder/asks$built"
    built=$((built + 1))
done
[ $built -gt 0 ] || exit 77
[ $built -lt 2 ] || diff "$folder/asks0" "$folder/asks1"
echo "built with $built sets of headers"
