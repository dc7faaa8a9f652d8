#!/bin/bash
# Installs what is missing to build and test Hawser: Debian packages, and a Python environment in .venv with the UCX
# wheel. When nothing is missing it asks no package manager anything and is done in well under a second.
set -euo pipefail
cd "$(dirname "$0")/.."

machine=$(uname -s)-$(uname -m)
case $machine in
    Linux-x86_64 | Linux-aarch64) ;;
    *) echo "Hawser runs on 64-bit Linux, x86_64 and aarch64; this is $machine." >&2; exit 1 ;;
esac

have() { command -v "$1" >/dev/null 2>&1; }
header() { echo "#include <$1>" | "${CC:-cc}" -E -x c - >/dev/null 2>&1; }
clang_runtime() { [ -e "$(clang -print-file-name="libclang_rt.tsan-$(uname -m).a")" ]; }
gcc_runtime() { [ -e "$(gcc -print-file-name=libasan.so)" ] && [ -e "$(gcc -print-file-name=libtsan.so)" ]; }
has_go() { have go || [ -x /usr/local/go/bin/go ]; }
has_venv() { python3 -c 'import ensurepip, venv' >/dev/null 2>&1; }

# The run-time package of the sanitizers is named after clang's own version; Debian 12's is 14.
clang_major=14
if have clang; then clang_major=$(clang -dumpversion | cut -d. -f1); fi

# Probes ask for the thing itself, not for the package: a tool that came another way is as good.
missing=()
want() { # want PACKAGE PROBE...
    local package=$1
    shift
    "$@" || missing+=("$package")
}
want build-essential gcc_runtime
want gcc have gcc
want g++ have g++
want make have make
want cmake have cmake
want ninja-build have ninja
want pkg-config have pkg-config
want python3 have python3
want python3-venv has_venv
want libucx-dev header ucp/api/ucp.h
want ucx-utils have ucx_perftest
want libcriterion-dev header criterion/criterion.h
want libsodium-dev header sodium.h
want libjansson-dev header jansson.h
want libffi-dev header ffi.h
want lua5.4 have lua5.4
want liblua5.4-dev header lua5.4/lua.h
want luajit have luajit
want clang have clang
want clang-format have clang-format
want clang-tidy have clang-tidy
want "libclang-rt-$clang_major-dev" clang_runtime
want iproute2 have ip
want iproute2 have ss
want util-linux have unshare
want binutils have nm
want groff-base have groff
# For one test, which is skipped without: where services run, the package would start one for all the network to reach.
if have apt-get && [ "$(id -u)" -eq 0 ] && [ ! -d /run/systemd/system ]; then
    want openssh-client have ssh-keygen
    want openssh-server test -x /usr/sbin/sshd
fi
# The worked example of docs/guide/bindgen.md.
want golang-go has_go

# Package servers and mirrors fail for a moment now and then; a second failure is a real one.
twice() { "$@" || { echo "setup: failed, once more in 5 s: $*" >&2; sleep 5; "$@"; }; }

if [ ${#missing[@]} -gt 0 ]; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    if ! have apt-get; then
        echo "setup: missing here, by the names of Debian's packages: ${missing[*]}" >&2
        echo "setup: install your system's equivalents and run this again." >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        echo "setup: packages are missing. Run this, then try again:" >&2
        echo "    sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
        exit 1
    fi
    echo "setup: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    twice apt-get -qq update
    twice apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# environment FOLDER REQUIREMENTS: the stamp holds what it was made from; a change of either makes it anew.
environment() {
    local folder=$1 requirements=$2 stamp=$1/hawser-stamp wanted
    wanted=$(cat "$requirements"; python3 -c 'import sys; print(sys.version, sys.base_prefix)')
    if [ -x "$folder/bin/python" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && "$folder/bin/python" -c '' 2>/dev/null; then
        return
    fi
    echo "setup: making $folder with $(grep -v '^#' "$requirements" | tr '\n' ' ')"
    rm -f "$stamp"
    python3 -m venv --clear "$folder"
    twice "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
    echo "$wanted" >"$stamp"
}
environment .venv scripts/requirements.txt
# The oldest distributed that hawser.dask works with (bindings/python/tests/dask/test_oldest.py).
environment .venv-dask2022 scripts/requirements-dask2022.txt

# Rust is not in want(): without it all but its binding is built and tested. What Cargo.lock names is fetched once.
if cargo=$(bash scripts/cargo.sh 2>&1); then
    crates=(fetch --quiet --locked --manifest-path bindings/rust-sys/Cargo.toml)
    "$cargo" "${crates[@]}" --offline 2>/dev/null || twice "$cargo" "${crates[@]}" ||
        echo "setup: the crates of bindings/rust-sys could not be fetched; its tests will be skipped" >&2
else
    echo "setup: the Rust binding will not be tested: $cargo" >&2
fi
