#!/bin/bash
# UCX: both
set -euo pipefail
[ -e "$HAWSER_BUILD_DIR/swig/lua/hawser/swig.so" ] ||
    { echo "SKIP: no SWIG module for Lua: SWIG 4.4 or the headers of Lua 5.4 were missing"; exit 77; }
command -v lua5.4 >/dev/null || { echo "SKIP: lua5.4 is not installed"; exit 77; }
exec lua5.4 "$HAWSER_SOURCE_DIR/tests/abi/swig_test.lua"
