#!/bin/bash
# The library exports what the header declares, no more and no less, and takes nothing from UCX at link time.
set -euo pipefail

lib=$HAWSER_LIBRARY
header=$HAWSER_SOURCE_DIR/include/hawser.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# The preprocessor drops comments; HWS_API becomes a word that marks a declaration.
sed 's/^#[ ]*define HWS_API.*/#define HWS_API HWS_DECLARED/' "$header" >"$work/hawser.h"
"$HAWSER_CC" -E -P "$work/hawser.h" | tr '\n' ' ' | tr ';' '\n' | sed -n 's/.*HWS_DECLARED[^(]*[ *]\(hws_[a-z0-9_]*\) *(.*/\1/p' |
    sort >"$work/declared"
nm -D --defined-only "$lib" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$work/exported"

status=0
[ -s "$work/declared" ] || { echo "FAIL: no declaration found in the header"; exit 1; }
missing=$(comm -23 "$work/declared" "$work/exported")
extra=$(comm -13 "$work/declared" "$work/exported")
[ -z "$missing" ] || { echo "FAIL: declared, not exported:" $missing; status=1; }
[ -z "$extra" ] || { echo "FAIL: exported, not declared:" $extra; status=1; }

unversioned=$(nm -D --defined-only "$lib" | awk '$2 != "A" && $3 !~ /@@HAWSER_/ { print $3 }')
[ -z "$unversioned" ] || { echo "FAIL: no symbol version:" $unversioned; status=1; }
ucx=$(nm -D "$lib" | awk '{ print $NF }' | grep -E '^(ucp|uct|ucs|ucm)_' || true)
[ -z "$ucx" ] || { echo "FAIL: symbols of UCX in the dynamic table:" $ucx; status=1; }
needed=$(readelf -d "$lib" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
for name in $needed; do
    case $name in
        libc.so.* | libdl.so.* | libpthread.so.* | libm.so.* | libsodium.so.* | ld-linux-*) ;;
        *) echo "FAIL: the library needs $name"; status=1 ;;
    esac
done
[ $status -ne 0 ] || echo "ok: $(wc -l <"$work/exported") functions; needs" $needed
exit $status
