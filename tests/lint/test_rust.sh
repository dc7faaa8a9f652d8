#!/bin/bash
# TIMEOUT: 300
set -euo pipefail

cd "$HAWSER_SOURCE_DIR/bindings/rust-sys"
cargo=$(bash "$HAWSER_SOURCE_DIR/scripts/cargo.sh" 2>&1) || { echo "SKIP: $cargo"; exit 77; }
for tool in fmt clippy; do
    "$cargo" $tool --version >/dev/null 2>&1 || { echo "SKIP: cargo $tool is not installed: rustup component add"; exit 77; }
done
"$cargo" fetch --quiet --locked --offline 2>/dev/null ||
    { echo "SKIP: the crates of Cargo.lock are not here: scripts/setup.sh fetches them"; exit 77; }
"$cargo" fmt --check
export CARGO_TARGET_DIR=$HAWSER_BUILD_DIR/cargo HAWSER_LIB_DIR=${HAWSER_LIBRARY%/*}
exec "$cargo" clippy --locked --offline --all-targets -- -D warnings
