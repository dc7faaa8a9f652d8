#!/bin/bash
# The source distribution of the Python package builds in an empty folder, away from this tree, and works from there.
# TIMEOUT: 600
set -euo pipefail

"$HAWSER_PYTHON" -c 'import scikit_build_core, swig' 2>/dev/null || { echo "SKIP: no scikit-build-core and swig in $HAWSER_PYTHON"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir dist empty target
sdist=$("$HAWSER_PYTHON" "$HAWSER_SOURCE_DIR/scripts/sdist.py" dist | tail -1)
cd empty
# Nothing of the environment but the tools: neither a package server nor what is installed there is asked.
CMAKE_BUILD_PARALLEL_LEVEL=2 "$HAWSER_PYTHON" -m pip install --quiet --disable-pip-version-check --no-index \
    --no-build-isolation --no-deps --target "$folder/target" "$sdist"
said=$(PYTHONPATH="$folder/target" "$HAWSER_PYTHON" -c '
import asyncio, hawser, hawser._swig

async def main():
    async with hawser.listen(host="127.0.0.1") as listener:
        async with hawser.connect("127.0.0.1", listener.port) as client, await listener.accept() as server:
            await client.send(b"from the sdist", tag=1)
            print((await server.recv(tag=1)).decode(), hawser.__file__)

asyncio.run(main())
')
echo "$said"
[ "$said" = "from the sdist $folder/target/hawser/__init__.py" ]
