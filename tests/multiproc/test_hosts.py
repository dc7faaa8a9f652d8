"""Hosts that a test makes, tests/support/peers.py, go with it even if it is killed.

UCX: none SHARED
"""

import glob
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ.get("HAWSER_SOURCE_DIR", "."), "tests"))
from support.peers import PATIENCE, Hosts


def make_and_wait():
    for name in Hosts().names:
        print(os.stat(f"/run/netns/{name}").st_ino, flush=True)
    signal.pause()


def held(namespace):
    """Whether a process is in the network namespace, or a mount that is seen from here keeps it."""
    name = f"net:[{namespace}]"
    with open("/proc/self/mountinfo") as mounts:
        if name in mounts.read():
            return True
    for link in glob.glob("/proc/[0-9]*/ns/net"):
        try:
            if os.readlink(link) == name:
                return True
        except OSError:  # it ended meanwhile
            pass
    return False


def main():
    if sys.argv[1:] == ["make"]:
        make_and_wait()
    maker = subprocess.Popen([sys.executable, __file__, "make"], stdout=subprocess.PIPE, text=True)
    lines = [maker.stdout.readline().strip() for _ in range(2)]
    if not all(line.isdigit() for line in lines):
        print(*lines, sep="\n")  # why it skips
        return maker.wait()
    maker.kill()
    maker.wait()
    end = time.monotonic() + PATIENCE
    while any(map(held, lines)):
        assert time.monotonic() < end, f"still there: {lines}"
        time.sleep(0.01)
    print("ok   gone with who made them")
    return 0


if __name__ == "__main__":
    sys.exit(main())
