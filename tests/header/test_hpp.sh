#!/bin/bash
# The C++ layer: compiles in each dialect with every compiler at hand, and a program over it works.
# UCX: both
set -euo pipefail

include=$HAWSER_SOURCE_DIR/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ran=0

for cxx in g++ clang++; do
    command -v $cxx >/dev/null || { echo "SKIP: $cxx is not installed"; continue; }
    for std in c++17 c++20; do
        $cxx -std=$std -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -I "$include" \
            "$HAWSER_SOURCE_DIR/examples/pair.cpp" -o "$work/pair" "$HAWSER_LIBRARY" -pthread
    done
    ran=1
    timeout 50 env LD_LIBRARY_PATH="$(dirname "$HAWSER_LIBRARY")" "$work/pair" </dev/null
done
[ $ran = 1 ] || { echo "SKIP: there is no C++ compiler"; exit 77; }
