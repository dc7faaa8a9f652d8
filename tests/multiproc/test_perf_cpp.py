"""examples/perf.cpp between two processes: every test and mode, each message checked; what it refuses."""

# TIMEOUT: 180 SHARED

from __future__ import annotations

import os
import subprocess
import sys
import time
import unittest

PROGRAM = os.path.join(os.environ.get("HAWSER_BUILD_DIR", "build"), "examples", "perf")
SANITIZED = bool(os.environ.get("HAWSER_SANITIZE"))
PATIENCE = 120 if SANITIZED else 40

# (test, server's mode, client's mode, options): every test and every mode, eager and rendezvous.
CASES = (
    ("tag_lat", "polling", "polling", "-s 8 -n 1000 -w 10"),
    ("tag_lat", "blocking", "thread-polling", "-s 100003 -n 50 -R 99 -e"),
    ("tag_bw", "thread-blocking", "wait", "-s 1000003 -n 20 -w 0 -L"),
    ("am_lat", "blocking", "blocking", "-s 1000 -n 5000"),
    ("am_lat", "polling", "thread-blocking", "-s 300000 -n 50 -L"),
    ("am_bw", "thread-polling", "polling", "-s 1000 -n 1000"),
)


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )


class Perf(unittest.TestCase):
    def serve(self, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        server = start("-p", "0", *arguments)
        self.addCleanup(server.communicate)
        self.addCleanup(server.kill)
        assert server.stdout is not None
        word, port = server.stdout.readline().split()
        self.assertEqual(word, "port")
        return server, port

    def pair(self, of_server: list[str], of_client: list[str]) -> tuple[int, list[str], str, int, list[str], str]:
        server, port = self.serve(*of_server)
        client = start("-p", port, *of_client, "127.0.0.1")
        self.addCleanup(client.kill)
        out, err = client.communicate(timeout=PATIENCE)
        served, complaint = server.communicate(timeout=PATIENCE)
        return client.returncode, out.splitlines(), err, server.returncode, served.splitlines(), complaint

    def test_figures(self) -> None:
        for test, theirs, ours, options in CASES:
            with self.subTest(test=test, server=theirs, client=ours):
                words = ["-t", test, "-v", *options.split()]
                begin = time.monotonic()
                code, out, err, served, lines, complaint = self.pair(["-P", theirs, *words], ["-P", ours, *words])
                wall = time.monotonic() - begin
                self.assertEqual((code, served), (0, 0), err + complaint)
                self.figures(words, out, wall)
                total = self.option(words, "-n") + self.option(words, "-w", 3)
                self.assertEqual(lines[-1], f"verified {total}")
                self.assertEqual(out[-1], f"verified {0 if test.endswith('_bw') else total}")
                self.assertRegex(lines[0], r"^client 127\.0\.0\.1:\d+$")
                print(f"ok: {out[1]}", flush=True)

    @staticmethod
    def option(words: list[str], letter: str, otherwise: int = 0) -> int:
        return int(words[words.index(letter) + 1]) if letter in words else otherwise

    def figures(self, words: list[str], out: list[str], wall: float) -> None:
        """The client's table says what was asked for, and its numbers fit each other and the clock."""
        test, *row = out[1].split()
        size, count = int(row[0]), int(row[1])
        rank, average, bandwidth, rate = map(float, row[2:])
        self.assertEqual([test, size, count], [words[1], self.option(words, "-s"), self.option(words, "-n")])
        self.assertIn(f"{self.option(words, '-R', 50)}%", out[0])
        for figure in (rank, average, bandwidth, rate):
            self.assertGreater(figure, 0)
        messages = count if test.endswith("_bw") else 2 * count
        self.assertLess(messages * average / 1e6, wall)
        self.assertAlmostEqual(bandwidth, size / average, delta=0.0001 + 0.02 * bandwidth)
        self.assertAlmostEqual(rate, 1e6 / average, delta=0.5 + 0.02 * rate)

    def test_sides_that_differ(self) -> None:
        code, _, err, served, _, complaint = self.pair(["-s", "8"], ["-s", "9"])
        self.assertEqual((code, served), (1, 1))
        self.assertIn("-s 8", err)
        self.assertIn("-s 9", complaint)

    def test_one_client_only(self) -> None:
        words = ["-P", "blocking", "-n", "1000000000"]
        _, port = self.serve(*words)
        clients = [start("-p", port, *words, "127.0.0.1") for _ in range(2)]
        for client in clients:
            self.addCleanup(client.communicate)
            self.addCleanup(client.kill)
        deadline = time.monotonic() + PATIENCE
        while all(client.poll() is None for client in clients) and time.monotonic() < deadline:
            time.sleep(0.01)
        codes = [client.poll() for client in clients]
        self.assertCountEqual(codes, [None, 1])
        complaint = clients[codes.index(1)].communicate()[1]
        self.assertIn("reject", complaint.lower())

    def test_client_that_dies(self) -> None:
        for test in ("tag_lat", "am_lat"):
            words = ["-t", test, "-P", "blocking", "-n", "100000000"]
            server, port = self.serve(*words)
            client = start("-p", port, *words, "127.0.0.1")
            self.addCleanup(client.communicate)
            self.addCleanup(client.kill)
            time.sleep(1)
            self.assertIsNone(client.poll())
            client.kill()
            _, complaint = server.communicate(timeout=PATIENCE)
            self.assertEqual(server.returncode, 1)
            self.assertIn("perf: ", complaint)

    def test_command_line(self) -> None:
        for words in ("-t nothing", "-P sleep", "-s 0", "-s 8x", "-n nan", "-p 65536", "-R 101", "-x", "-s"):
            got = subprocess.run([PROGRAM, *words.split()], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(got.returncode, 2, words)
            self.assertIn("Usage:", got.stderr)


if __name__ == "__main__":
    if not os.path.exists(PROGRAM):
        print("SKIP: examples/perf.cpp was not built: there is no C++ compiler")
        sys.exit(77)
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
