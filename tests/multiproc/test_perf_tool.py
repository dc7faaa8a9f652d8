"""`hawser perf` ends when its peer does, and no command says that all went well when its output was lost."""

# SHARED
# TIMEOUT: 240

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import unittest

PROGRAM = os.path.join(os.environ.get("HAWSER_BUILD_DIR", "build"), "hawser")
FOR_EVER = "100000000000"


def become_poor() -> None:
    os.setuid(23457)
    resource.setrlimit(resource.RLIMIT_NPROC, (4, 4))


class Perf(unittest.TestCase):
    @unittest.skipUnless(os.geteuid() == 0, "only root can become a user with no process to spare")
    def test_no_process_for_the_client(self) -> None:
        r = subprocess.run(
            [PROGRAM, "perf", "--self", "-t", "tag_lat", "-n", "100", "-p", "0"],
            preexec_fn=become_poor,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(r.returncode, 1, r.stderr)
        self.assertIn("did not start", r.stderr)

    def ends_with_its_peer(self, test: str, killed: str, *options: str) -> None:
        server = subprocess.Popen(
            [PROGRAM, "perf", "-p", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(server.kill)
        found = re.search(r"on port (\d+)", server.stdout.readline())
        self.assertIsNotNone(found)
        client = subprocess.Popen(
            [PROGRAM, "perf", "-p", found[1], "-t", test, "-n", FOR_EVER, *options, "127.0.0.1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(client.kill)
        self.assertIn("Accepted", server.stdout.readline())
        with self.assertRaises(subprocess.TimeoutExpired):
            client.wait(0.5)
        dies, lives = (server, client) if killed == "server" else (client, server)
        dies.send_signal(signal.SIGKILL)
        dies.communicate()
        _, said = lives.communicate(timeout=30)
        self.assertEqual(lives.returncode, 1, said)
        print(f"ok: {test} {options}, {killed} killed: {said.strip()}")

    def test_peers_that_die(self) -> None:
        for test, *options in (
            ["tag_lat"],
            ["am_lat"],
            ["am_lat", "-E", "sleep"],
            ["am_bw"],
            ["am_bw", "-T", "2"],
            ["ucp_put_lat"],
            ["ucp_put_bw"],
            ["ucp_get"],
            ["ucp_fadd"],
            ["plan_bw"],
        ):
            for killed in ("server", "client"):
                self.ends_with_its_peer(test, killed, *options)

    def test_output_that_is_lost(self) -> None:
        for words in (["info"], ["--help"], ["--version"], ["perf", "-l", "-t", "tag_lat", "-n", "100", "--json"]):
            with open("/dev/full", "w") as full:
                got = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(got.returncode, 1, words)
            self.assertIn("output could not be written", got.stderr)

    def test_a_rank_that_is_no_number(self) -> None:
        got = subprocess.run([PROGRAM, "perf", "-l", "-R", "nan"], capture_output=True, text=True, timeout=60)
        self.assertEqual(got.returncode, 2)
        self.assertIn("-R", got.stderr)

    def test_percentiles_in_columns(self) -> None:
        for words in ([], ["-f"], ["-f", "-T", "2"]):
            got = subprocess.run(
                [PROGRAM, "perf", "--self", "-t", "tag_lat", "-n", "1000", "-v", "--percentiles", *words],
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual(got.returncode, 0, got.stderr)
            table = got.stdout[got.stdout.index("iterations,") :].splitlines()
            names, *_, values = (line.split(",") for line in table)
            self.assertEqual(names[-4:], ["p50_lat", "p99_lat", "p99.9_lat", "max_lat"])
            known = [float(value) for value in values[-4:]]
            self.assertEqual(known, sorted(known))
            self.assertGreater(known[0], 0)

    def test_what_would_measure_something_else(self) -> None:
        for words in (
            ["-l", "-t", "tag_lat", "--pause", "10"],
            ["--compare", "1", "-t", "tag_lat", "--pause", "10"],
            ["--self", "-t", "tag_bw", "--pause", "10"],
            ["--self", "-t", "stream_lat", "-s", "0"],
            ["-l", "-t", "stream_bw", "-s", "0"],
        ):
            got = subprocess.run([PROGRAM, "perf", "-n", "10", *words], capture_output=True, text=True, timeout=60)
            self.assertEqual(got.returncode, 2, words)
            print(f"ok: {words}: {got.stderr.strip()}")


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
