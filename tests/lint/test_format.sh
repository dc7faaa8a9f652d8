#!/bin/bash
# TIMEOUT: 120
set -euo pipefail

command -v clang-format >/dev/null || { echo "SKIP: clang-format is not installed"; exit 77; }
# Another version breaks lines elsewhere: only the one that the style was made with may judge.
found=$(clang-format --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
[ "$found" = 14 ] || { echo "SKIP: the style is checked with clang-format 14, this is $found"; exit 77; }
cd "$HAWSER_SOURCE_DIR"
folders=()
for folder in include core tools tests examples bench; do
    [ -d $folder ] && folders+=($folder)
done
files=$(mktemp)
changes=$(mktemp)
trap 'rm -f "$files" "$changes"' EXIT
find "${folders[@]}" -name '*.[ch]' -print0 | sort -z >"$files"
xargs -0 -P "$(nproc)" -n 50 clang-format --style=file --dry-run -Werror <"$files" 2>/dev/null && exit 0
status=0
while IFS= read -r -d '' file; do
    if ! clang-format --style=file "$file" | diff -u --label "$file" --label "$file (formatted)" "$file" - >"$changes"; then
        status=1
        echo "FAIL: $file (clang-format -i $file), from:"
        head -n 8 "$changes"
    fi
done <"$files"
exit $status
