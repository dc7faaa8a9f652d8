"""The whole loopback suite with allocations that fail: every n-th one of the library's, for several n.

A case may go through, or give up with a code that comes of a lack of memory. It must not crash, hang, tell another code
or (where LeakSanitizer looks) leak. LABELS: soak TIMEOUT: 900 SOAK: 7200
"""

import glob
import os
import re
import subprocess
import sys

BUILD = os.environ["HAWSER_BUILD_DIR"]
SOAK = bool(os.environ.get("HAWSER_SOAK"))
GAVE_UP = 76
# Small ones fail in the midst of opening, large ones in the midst of what a case is about.
STEPS = (2, 7, 19, 47, 97, 151, 211, 307, 401, 503)


def sweep(program, n):
    run = subprocess.run(
        [program], env={**os.environ, "HAWSER_FAIL_EVERY": str(n)}, capture_output=True, text=True, errors="replace"
    )
    found = re.search(r"swept: (\d+) cases went through, (\d+) gave up, (\d+) ended badly", run.stdout)
    if found is None and run.returncode in (0, GAVE_UP):  # a program that is one case
        return run.returncode == 0, run.returncode == GAVE_UP
    if found is None or run.returncode != 0:
        bad = [line for line in run.stdout.splitlines() if line.startswith("FAIL")]
        print(f"FAIL {os.path.basename(program)}, every {n}-th: exit code {run.returncode}, {bad}", flush=True)
        print(run.stderr[-3000:], flush=True)
        return None
    return tuple(int(x) for x in found.groups()[:2])


def main():
    programs = sorted(glob.glob(os.path.join(BUILD, "tests", "swept", "test_*")))
    assert len(programs) >= 25, programs
    failed = through = gave_up = runs = 0
    for i, program in enumerate(programs):
        for n in STEPS if SOAK else (STEPS[i % len(STEPS)], STEPS[(i + 5) % len(STEPS)]):
            runs += 1
            counts = sweep(program, n)
            if counts is None:
                failed += 1
            else:
                through += counts[0]
                gave_up += counts[1]
    print(f"{len(programs)} programs, {runs} runs: {through} cases went through, {gave_up} gave up, {failed} runs bad")
    assert gave_up > 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
