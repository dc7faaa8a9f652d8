#!/bin/bash
# scripts/test.sh [quick|all|soak]: what `make test`, `make test-all` and `make soak` run. Every phase runs whatever
# became of the one before it; the summary at the end names each failed phase and each skipped test.
set -uo pipefail
cd "$(dirname "$0")/.."

mode=${1:-quick}
jobs=$(nproc)
reports=$PWD/build/reports
failed=()

say() { printf '\n== %s\n' "$*"; }

# phase PRESET NAME TARGETS CTEST-ARGUMENT...: configure, build, run a choice of the tests.
phase() {
    local preset=$1 name=$2 targets rc
    read -ra targets <<<"$3"
    shift 3
    say "$name"
    if ! { cmake --preset "$preset" >build/reports/"$name".configure.log 2>&1 || { cat build/reports/"$name".configure.log; false; }; }; then
        failed+=("$name (configure)")
        return
    fi
    if ! cmake --build --preset "$preset" -j "$jobs" --target "${targets[@]}"; then
        failed+=("$name (build)")
        return
    fi
    # One more than cores: tests wait more than they work. Once more for a test that failed: shared machines stall; both
    # results stay in the output.
    ctest --preset "$preset" -j "$((jobs + 1))" --repeat until-pass:2 --output-junit "$reports/$name.xml" --test-output-size-passed 1000000 \
        --test-output-size-failed 1000000 "$@"
    rc=$?
    [ $rc -eq 0 ] || failed+=("$name (tests)")
}

bash scripts/setup.sh || exit 1
rm -rf "$reports"
mkdir -p "$reports"

case $mode in
    quick)
        phase release release all -LE soak
        phase asan asan 'tests_unit tests_loopback tests_abi tests_fuzz' -L '^(unit|loopback|abi|fuzz)$' -LE soak
        phase tsan tsan tests_loopback -L '^loopback$' -LE soak
        ;;
    all)
        export HAWSER_TEST_ALL=1
        phase release release all -LE soak
        phase clang-release clang-release all -LE 'soak|lint|header'
        for preset in asan tsan clang-asan clang-tsan; do
            phase $preset $preset all -LE soak
        done
        phase asan leaks all -C Soak -R '^fault\.no_memory_suite\.(system|wheel)$' # for leaks
        phase release soak all -C Soak -L '^soak$'
        ;;
    soak)
        phase release soak all -C Soak -L '^soak$'
        ;;
    *)
        echo "usage: scripts/test.sh [quick|all|soak]" >&2
        exit 2
        ;;
esac

say summary
python3 scripts/summary.py "$reports"/*.xml || failed+=("summary")
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
