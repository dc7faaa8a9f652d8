#!/bin/bash
# The C++ layer: compiles in each dialect with every compiler at hand, and programs over it work on each UCX build.
# TIMEOUT: 300
set -euo pipefail

include=$HAWSER_SOURCE_DIR/include
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ran=0

build() { # build SOURCE NAME
    $cxx -std=$std -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -I "$include" -I "$HAWSER_SOURCE_DIR/tests" \
        "$HAWSER_SOURCE_DIR/$1" -o "$work/$2" "$HAWSER_LIBRARY" -pthread
}

for cxx in g++ clang++; do
    command -v $cxx >/dev/null || { echo "SKIP: $cxx is not installed"; continue; }
    for std in c++17 c++20; do
        build examples/pair.cpp pair
        build examples/perf.cpp perf
        build tests/header/streams.cpp streams
        build tests/header/deadlines.cpp deadlines
    done
    for ucx in system "${HAWSER_WHEEL_LIB:-wheel}"; do
        HAWSER_UCX=$ucx "$HAWSER_PROGRAM" info >/dev/null || { echo "SKIP: no UCX by '$ucx'"; continue; }
        for program in pair streams deadlines; do
            HAWSER_UCX=$ucx LD_LIBRARY_PATH=$(dirname "$HAWSER_LIBRARY") timeout 100 "$work/$program" </dev/null
        done
        ran=1
    done
done
[ $ran = 1 ] || { echo "SKIP: there is no C++ compiler, or no UCX"; exit 77; }
