#!/bin/bash
# TIMEOUT: 120
# Each generated layer is accepted by the language it is for.
set -euo pipefail

cd "$HAWSER_SOURCE_DIR"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
check() { # check NAME PROGRAM COMMAND...
    local name=$1 program=$2
    shift 2
    if ! command -v "$program" >/dev/null; then
        # A part, not the whole, is skipped.
        echo "SKIP: $name: $program is not installed"
    elif "$@" >"$work/out" 2>&1 && [ ! -s "$work/out" ]; then
        echo "ok: $name"
    else
        echo "FAIL: $name:"
        cat "$work/out"
        status=1
    fi
}

if reason=$(bash scripts/cargo.sh 2>&1 >"$work/cargo"); then
    check "Rust extern and layout asserts" rustc \
        rustc --edition 2021 -D warnings --crate-type lib --emit metadata -o "$work/bindings.rmeta" bindings/rust-sys/src/bindings.rs
else
    echo "SKIP: Rust extern and layout asserts: $reason"
fi
cat >"$work/load.lua" <<'LUA'
local abi, ffi = require "hawser.cdef", require "ffi"
ffi.cdef(abi.cdef)
local checked = 0
for name, layout in pairs(abi.layout) do
    assert(ffi.sizeof(name) == layout.size, name)
    for field, offset in pairs(layout.fields) do
        assert(ffi.offsetof(name, field) == offset, name .. "." .. field)
        checked = checked + 1
    end
end
assert(checked > 100)
local lib = ffi.load(os.getenv "HAWSER_LIBRARY")
for _, name in ipairs(abi.functions) do assert(lib[name] ~= nil, name) end
assert(lib.hws_abi_version() == abi.abi_version)
LUA
if [ -z "${HAWSER_SANITIZE:-}" ]; then
    LUA_PATH='bindings/lua/?.lua' check "LuaJIT cdef, layout and symbols" luajit luajit "$work/load.lua"
fi
pages=(docs/man/*.3)
check "${#pages[@]} man pages" groff bash -c 'for page in docs/man/*.3; do groff -man -Tutf8 -ww -z "$page" || exit 1; done'
check "symbol map against the header's functions" diff \
    diff <(sed -n 's/^        \(hws_.*\);/\1/p' abi/generated/hawser.map | sort) \
    <(grep -A1 '^HWS_API' include/hawser.h | grep -o '\bhws_[a-z0-9_]*(' | tr -d '(' | sort -u)
exit $status
