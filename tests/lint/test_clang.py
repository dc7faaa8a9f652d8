# TIMEOUT: 600
"""Every C and C++ file that the build compiles passes clang's front end too, with its warnings as errors."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

# Words of GCC's that clang does not know, and those of the output, which is not written.
NOT_FOR_CLANG = ("-flto", "-ffat-lto-objects", "-fno-tree-slp-vectorize")


def command(entry: dict[str, str]) -> list[str]:
    words = shlex.split(entry["command"])
    kept = [w for w in words[1:] if not w.startswith(NOT_FOR_CLANG)]
    where = kept.index("-o")
    del kept[where : where + 2]
    compiler = "clang" if entry["file"].endswith(".c") else "clang++"
    return [compiler, *kept, "-fsyntax-only"]


def check(entry: dict[str, str]) -> tuple[str, str, bool]:
    done = subprocess.run(command(entry), cwd=entry["directory"], capture_output=True, text=True, check=False)
    return entry["file"], done.stderr, done.returncode == 0


def main() -> int:
    if shutil.which("clang") is None:
        print("SKIP: clang is not installed")
        return 77
    with open(os.path.join(os.environ["HAWSER_BUILD_DIR"], "compile_commands.json"), encoding="utf-8") as f:
        entries = json.load(f)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(check, entries))
    failed = [(file, text) for file, text, ok in results if not ok]
    for file, text in failed:
        print(f"{file}:\n{text}")
    print(f"{len(results)} compilations, {len(failed)} refused by clang")
    return 1 if failed or not results else 0


sys.exit(main())
