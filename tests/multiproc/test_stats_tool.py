"""`hawser stats` reads the counters of a process that runs, and says what is wrong when it cannot."""

# TIMEOUT: 120

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import unittest

PROGRAM = os.path.join(os.environ.get("HAWSER_BUILD_DIR", "build"), "hawser")


def stats(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, "stats", *arguments], capture_output=True, text=True, timeout=60)


class Stats(unittest.TestCase):
    def test_of_a_server(self) -> None:
        server = subprocess.Popen([PROGRAM, "perf", "-p", "0", "-E", "sleep"], stdout=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 60
            while (got := stats(str(server.pid), "--json")).returncode != 0 and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual(got.returncode, 0, got.stderr)
            workers = json.loads(got.stdout)["workers"]
            self.assertGreaterEqual(len(workers), 1)
            self.assertEqual(workers[0]["kinds"]["tag"]["sent"], 0)
            text = stats(str(server.pid), "--all")
            self.assertEqual(text.returncode, 0, text.stderr)
            self.assertIn("safety_wakeups", text.stdout)
            self.assertIn("transport", text.stdout)
        finally:
            server.kill()
            server.wait()
        self.assertEqual(stats(str(server.pid)).returncode, 1)

    def test_watching_into_a_full_disk(self) -> None:
        server = subprocess.Popen([PROGRAM, "perf", "-p", "0", "-E", "sleep"], stdout=subprocess.PIPE, text=True)
        try:
            server.stdout.readline()  # it listens
            with open("/dev/full", "w") as full:
                watch = [PROGRAM, "stats", "--watch", "1", str(server.pid)]
                got = subprocess.run(watch, stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
            self.assertEqual(got.returncode, 1)
            self.assertIn("output could not be written", got.stderr)
        finally:
            server.kill()
            server.communicate()

    def test_what_is_no_process(self) -> None:
        for arguments, code, words in (
            ([], 2, "one process id"),
            (["x"], 2, "one process id"),
            (["--watch", "0", "1"], 2, "--watch"),
            (["--nonsense", "1"], 2, "--nonsense"),
            (["2147483647"], 1, "no process"),
            ([str(os.getpid())], 1, "no worker"),
        ):
            got = stats(*arguments)
            self.assertEqual(got.returncode, code, arguments)
            self.assertIn(words, got.stderr)
            print(f"ok: {arguments}: {got.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
