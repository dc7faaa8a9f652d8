#!/bin/bash
# Everything that is generated from the header is what it would be if it were generated now.
set -euo pipefail
exec "$HAWSER_PYTHON" "$HAWSER_SOURCE_DIR/abi/gen.py" --check
