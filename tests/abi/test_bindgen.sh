#!/bin/bash
# TIMEOUT: 240
# The worked example of docs/guide/bindgen.md: an emitter of one's own, run by hawser-bindgen; its Go package works.
set -euo pipefail

source=$HAWSER_SOURCE_DIR
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
command=$source/abi/hawser-bindgen

"$command" --list >"$work/list"
grep -q '^rust-extern ' "$work/list" || { echo "FAIL: --list"; exit 1; }
# A reader that has seen enough: everything is written all the same, and nothing is complained of.
"$command" --list 2>"$work/err" | head -n 1 >"$work/first"
"$command" --out "$work/piped" man-pages 2>>"$work/err" | true
[ ! -s "$work/err" ] || { echo "FAIL: a pipe that was closed:"; cat "$work/err"; exit 1; }
diff -r "$work/piped/docs/man" "$source/docs/man" || { echo "FAIL: a closed pipe stopped the writing"; exit 1; }
sed 's/"direction": "out"/"direction": "up"/' "$source/abi/abi.json" >"$work/damaged.json"
if "$command" --abi "$work/damaged.json" --out "$work" rust-extern 2>"$work/err"; then
    echo "FAIL: a damaged abi.json was accepted"
    exit 1
fi
grep -q "'up' is not one of" "$work/err" || { echo "FAIL: the schema did not say what is wrong:"; cat "$work/err"; exit 1; }

printf '{\n"abi": "\377"}' >"$work/binary.json"
printf 'def emit(abi):\n    return 5\n' >"$work/number.py"
said() { # said TEXT ARGUMENT...: refused in one line that says it
    local text=$1
    shift
    if "$command" "$@" 2>"$work/err"; then echo "FAIL: accepted: $*"; exit 1; fi
    [ "$(wc -l <"$work/err")" = 1 ] && grep -q -- "$text" "$work/err" || { echo "FAIL: $*:"; cat "$work/err"; exit 1; }
}
said 'binary.json:2: not UTF-8' --abi "$work/binary.json" --out "$work" rust-extern
said 'none.json:1: cannot be read: No such file' --abi "$work/none.json" --out "$work" rust-extern
said 'neither a file nor one of' --out "$work" no-such-emitter
said 'not a Python file' --out "$work" "$source/include/hawser.h"
said 'gave no dict' --out "$work" "$work/number.py"
said 'Not a directory' --out "$work/list" rust-extern

# The command as a third party has it: installed, away from the source tree.
cp -r "$source/abi" "$work/abi"
"$source/.venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps \
    --target "$work/installed" "$work/abi"
rm -r "$work/abi"
export PYTHONPATH=$work/installed
command=$work/installed/bin/hawser-bindgen
(cd "$work" && "$command" --out "$work/alike" rust-extern man-pages)
diff -r "$work/alike/docs/man" "$source/docs/man" || { echo "FAIL: the installed command writes something else"; exit 1; }

mkdir "$work/hawser"
"$command" --out "$work/hawser" "$source/examples/bindgen/go/emit_go.py"
go=$(command -v go || echo /usr/local/go/bin/go)
[ -x "$go" ] || { echo "SKIP: go is not installed (scripts/setup.sh does that); the emitter ran, its package was not built"; exit 77; }
cp "$source/examples/bindgen/go/main.go" "$work/"
printf 'module example\n\ngo 1.19\n' >"$work/go.mod"
# What pkg-config says of an installed tree, for the build tree.
mkdir "$work/pc"
printf 'Name: hawser\nDescription: build tree\nVersion: 0\nCflags: -I%s/include\nLibs: %s\n' "$source" "$HAWSER_LIBRARY" >"$work/pc/hawser.pc"
cd "$work"
export PKG_CONFIG_PATH=$work/pc GOFLAGS=-mod=mod GOPROXY=off GOCACHE=$work/cache CGO_ENABLED=1 CGO_LDFLAGS_ALLOW='.*'
export LD_LIBRARY_PATH=${HAWSER_LIBRARY%/*} GOMAXPROCS=2
"$go" vet ./...
"$go" build -o example .
./example
