#!/bin/bash
# scripts/fuzz.sh [SECONDS [NAME]]: build the targets of tests/fuzz with clang's libFuzzer and run each of them, or one, for
# a while. What it finds lies in build/fuzz; put it into tests/fuzz/corpus once it is repaired: ctest replays that (fuzz.*).
set -euo pipefail

seconds=${1:-60}
cd "$(dirname "$0")/.."
cmake -S . -B build/fuzz -G Ninja -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DHAWSER_SANITIZE=fuzzer-no-link,address,undefined -DHAWSER_BUILD_TESTS=OFF -DHAWSER_BUILD_EXAMPLES=OFF >/dev/null
cmake --build build/fuzz --target hawser_core
headers=$(sed -n 's/^HAWSER_UCX_HEADERS:[A-Z]*=//p' build/fuzz/CMakeCache.txt)
read -ra sodium <<<"$(pkg-config --libs libsodium 2>/dev/null || true)"

for source in tests/fuzz/test_${2:-*}.c; do
    name=$(basename "$source" .c)
    name=${name#test_}
    # The markers of tests/CMakeLists.txt.
    read -ra with <<<"$(sed -n 's/^ \* WITH: *//p' "$source")"
    read -ra wrap <<<"$(sed -n 's/^ \* WRAP: *//p' "$source")"
    mkdir -p "build/fuzz/corpus/$name"
    clang -std=gnu11 -g -O1 -DHWS_FUZZER -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE \
        -Itests -iquote core -Iinclude ${headers:+-isystem "$headers"} "$source" "${with[@]/#/tests/fuzz/}" tests/support/check.c \
        build/fuzz/libhawser_core.a -pthread -ldl -lm "${sodium[@]}" "${wrap[@]/#/-Wl,--wrap=}" -o "build/fuzz/fuzz_$name"
    (cd build/fuzz && "./fuzz_$name" -max_total_time="$seconds" -timeout=10 -print_final_stats=1 \
        "corpus/$name" "../../tests/fuzz/corpus/$name")
done
