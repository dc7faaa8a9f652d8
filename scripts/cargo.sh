#!/bin/bash
# Prints which cargo builds the Rust binding, or says why none can.
set -euo pipefail

oldest=1.82 # `unsafe extern`; Debian 12 has 1.63
cargo=$(command -v cargo || echo "${CARGO_HOME:-$HOME/.cargo}/bin/cargo")
[ -x "$cargo" ] || { echo "cargo was not found: Rust $oldest or newer is installed by https://rustup.rs" >&2; exit 1; }
found=$("$cargo" --version | cut -d ' ' -f 2)
[ "$(printf '%s\n' "$oldest" "$found" | sort -V | head -n 1)" = "$oldest" ] ||
    { echo "$cargo is of Rust $found: $oldest or newer is installed by https://rustup.rs" >&2; exit 1; }
echo "$cargo"
