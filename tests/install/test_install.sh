#!/bin/bash
# TIMEOUT: 180
# Installs into a fresh prefix and uses it as its users do. Everything is moved once after the install, since packages
# are built in one place and used in another.
set -euo pipefail

work=$HAWSER_BUILD_DIR/tests/install/work
source=$HAWSER_SOURCE_DIR/tests/install/consumer
cc=$HAWSER_CC
case $(basename "$cc") in *clang*) cxx=clang++ ;; *) cxx=g++ ;; esac

fail() { echo "FAIL: $*"; exit 1; }
for tool in pkg-config nm readelf "$cxx"; do
    command -v "$tool" >/dev/null || { echo "SKIP: $tool is not installed"; exit 77; }
done

rm -rf "$work"
mkdir -p "$work"
"$HAWSER_CMAKE" --install "$HAWSER_BUILD_DIR" --prefix "$work/staged" >"$work/install.log"
mv "$work/staged" "$work/prefix"

pc=$(find "$work/prefix" -name hawser.pc -printf '%h\n')
[ -n "$pc" ] || fail "hawser.pc was not installed"
export PKG_CONFIG_PATH=$pc
libdir=$(cd "$(dirname "$pc")" && pwd)
lib=$libdir/libhawser.so
version=$(pkg-config --modversion hawser)
major=${version%%.*}
echo "version $version in ${libdir#"$work"/}"

echo "-- files"
for file in "$work/prefix/include/hawser.h" "$lib" "$lib.$major" "$lib.$version" "$libdir/cmake/hawser/hawserConfig.cmake" \
    "$libdir/cmake/hawser/hawserConfigVersion.cmake"; do
    [ -e "$file" ] || fail "not installed: ${file#"$work"/prefix/}"
done
if grep -rlF -e "$HAWSER_SOURCE_DIR" -e "$work/staged" "$pc" "$libdir/cmake"; then
    fail "an installed file names the place it was built in"
fi
soname=$(readelf -d "$lib" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
[ "$soname" = "libhawser.so.$major" ] || fail "soname is $soname"
readelf -d "$lib" | grep -Eq 'R(UN)?PATH' && fail "the library carries a run path"

echo "-- pkg-config"
read -ra flags <<<"$(pkg-config --cflags --libs hawser)"
"$cc" -Wall -Wextra -Werror "$source/consumer.c" -o "$work/pc_c" "${flags[@]}"
"$cxx" -Wall -Wextra -Werror "$source/consumer.cc" -o "$work/pc_cxx" "${flags[@]}"
LD_LIBRARY_PATH=$libdir "$work/pc_c"
LD_LIBRARY_PATH=$libdir "$work/pc_cxx"

echo "-- find_package"
cmake_args=(-S "$source" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx")
"$HAWSER_CMAKE" "${cmake_args[@]}" -B "$work/fp" -DWANTED="${version%.*}" >"$work/fp.log" 2>&1 || { cat "$work/fp.log"; exit 1; }
"$HAWSER_CMAKE" --build "$work/fp" >>"$work/fp.log" || { cat "$work/fp.log"; exit 1; }
"$work/fp/consumer_c"
"$work/fp/consumer_cxx"
if "$HAWSER_CMAKE" "${cmake_args[@]}" -B "$work/newer" -DWANTED=$((major + 1)).0 >"$work/newer.log" 2>&1; then
    fail "version $version was accepted where $((major + 1)).0 is asked for"
fi

if [ -n "${HAWSER_PROGRAM:-}" ]; then
    echo "-- program finds its library"
    ldd "$work/prefix/bin/hawser" | grep -F "$libdir/$soname" >/dev/null || {
        resolved=$(ldd "$work/prefix/bin/hawser" | awk -v so="$soname" '$1 == so { print $3 }')
        [ "$(readlink -f "$resolved")" = "$(readlink -f "$lib")" ] || fail "hawser uses '$resolved'"
    }
fi
echo "ok"
