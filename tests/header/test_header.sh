#!/bin/bash
# The header compiles alone, in old and new dialects of both languages, with every compiler at hand.
set -euo pipefail

header=$HAWSER_SOURCE_DIR/include/hawser.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

includes=$(sed -n 's/^#[ ]*include[ ]*//p' "$header" | sort | tr '\n' ' ')
if [ "$includes" != "<stddef.h> <stdint.h> " ]; then
    echo "FAIL: the header includes $includes"
    status=1
fi

# Twice, for the include guard; as a source file, since some warnings are silent in headers.
printf '#include "hawser.h"\n#include "hawser.h"\nextern int unused;\n' >"$work/alone.c"
cp "$work/alone.c" "$work/alone.cc"
warnings=(-Wall -Wextra -pedantic -Wshadow -Wundef -Wconversion -Werror -I "${header%/*}" -fsyntax-only)
check() {
    if "$@"; then echo "ok: $1 $2"; else echo "FAIL: $1 $2"; status=1; fi
}
for pair in "gcc g++" "clang clang++"; do
    read -r cc cxx <<<"$pair"
    if ! command -v "$cc" >/dev/null || ! command -v "$cxx" >/dev/null; then
        # One of two compilers missing still leaves a result: this is a part, not the whole, that is skipped.
        echo "SKIP: $cc is not installed"
        continue
    fi
    for std in c99 c11 c17; do check "$cc" -std=$std -Wstrict-prototypes "${warnings[@]}" "$work/alone.c"; done
    for std in c++11 c++17 c++20; do check "$cxx" -std=$std "${warnings[@]}" "$work/alone.cc"; done
done
exit $status
