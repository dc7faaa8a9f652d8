#!/bin/bash
# UCX: both
# TIMEOUT: 300
# The vectors through the declarations for Rust: bindings/rust-sys/tests.
set -euo pipefail

cd "$HAWSER_SOURCE_DIR/bindings/rust-sys"
cargo=$(bash "$HAWSER_SOURCE_DIR/scripts/cargo.sh" 2>&1) || { echo "SKIP: $cargo"; exit 77; }
"$cargo" fetch --quiet --locked --offline 2>/dev/null ||
    { echo "SKIP: the crates of Cargo.lock are not here: scripts/setup.sh fetches them"; exit 77; }
export CARGO_TARGET_DIR=$HAWSER_BUILD_DIR/cargo HAWSER_LIB_DIR=${HAWSER_LIBRARY%/*} RUSTFLAGS="-D warnings"
export LD_LIBRARY_PATH=$HAWSER_LIB_DIR
exec "$cargo" test --locked --offline -- --nocapture
