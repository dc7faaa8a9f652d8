"""The examples in C, each between processes: echo, a copied file, a key-value server. TIMEOUT: 180"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

FOLDER = os.path.join(os.environ.get("HAWSER_BUILD_DIR", "build"), "examples")
PATIENCE = 60


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [os.path.join(FOLDER, name), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Examples(unittest.TestCase):
    def started(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        process = start(name, *arguments)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def serve(self, name: str, *arguments: str) -> tuple[subprocess.Popen[str], str]:
        """A server on a free port, and that port."""
        server = self.started(name, *arguments)
        assert server.stdout is not None
        word, port = server.stdout.readline().split()
        self.assertEqual(word, "port")
        return server, port

    def output(self, process: subprocess.Popen[str], given: str | None = None, code: int = 0) -> str:
        said, complaint = process.communicate(given, timeout=PATIENCE)
        self.assertEqual(process.returncode, code, complaint)
        return said

    def test_echo(self) -> None:
        server, port = self.serve("echo", "serve", "0")
        lines = [f"line {i} {'x' * (i * 13 % 4000)}\n" for i in range(200)]
        clients = [self.started("echo", "127.0.0.1", port) for _ in range(3)]
        clients[0].kill()  # the others do not notice
        for client in clients[1:]:
            self.assertEqual(self.output(client, "".join(lines)), "".join(lines))
        self.assertIsNone(server.poll())
        self.assertIn("connecting: ", self.refused("echo", "127.0.0.1", "1"))

    def refused(self, name: str, *arguments: str) -> str:
        process = self.started(name, *arguments)
        _, complaint = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 1)
        return complaint

    def test_file(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, copy = os.path.join(folder, "source"), os.path.join(folder, "copy")
            for size, way in ((5_000_003, ()), (5_000_003, ("tcp",)), (0, ())):
                with open(source, "wb") as file:
                    file.write(random.Random(size).randbytes(size))
                receiver, port = self.serve("filecopy", "receive", "0", copy)
                said = self.output(self.started("filecopy", "send", "127.0.0.1", port, source, *way))
                heard = self.output(receiver)
                self.assertIn(f"{size} bytes", said)
                self.assertIn(f"{copy}: {size} bytes, checksum ", heard)
                self.assertIn("tcp" if way else "sysv", said)
                with open(source, "rb") as one, open(copy, "rb") as other:
                    self.assertEqual(one.read(), other.read())

    def test_others_while_a_file_is_copied(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, copy, size = os.path.join(folder, "source"), os.path.join(folder, "copy"), 256 << 20
            with open(source, "wb") as file:
                file.truncate(size)
            receiver, port = self.serve("filecopy", "receive", "0", copy)
            sender = self.started("filecopy", "send", "127.0.0.1", port, source, "tcp")
            deadline = time.monotonic() + PATIENCE
            while not (os.path.exists(copy) and os.path.getsize(copy) == size) and time.monotonic() < deadline:
                time.sleep(0.0005)
            sender.send_signal(signal.SIGSTOP)
            try:
                self.assertIn("the peer said goodbye", self.refused("filecopy", "send", "127.0.0.1", port, source))
            finally:
                sender.send_signal(signal.SIGCONT)
            self.assertIn("verified", self.output(sender))
            self.assertIn("verified", self.output(receiver))

    def test_a_disk_without_room(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, small = os.path.join(folder, "source"), os.path.join(folder, "small")
            with open(source, "wb") as file:
                file.truncate(8 << 20)
            os.mkdir(small)
            own = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
            mount = f"mount -t tmpfs -o size=1m none {small}"
            if shutil.which("unshare") is None or subprocess.run([*own, mount], capture_output=True).returncode != 0:
                self.skipTest("no file system of our own can be mounted here")
            receive = f"{mount} && exec {os.path.abspath(FOLDER)}/filecopy receive 0 {small}/copy"
            with subprocess.Popen(
                [*own, receive], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as receiver:
                self.addCleanup(receiver.kill)
                _, port = receiver.stdout.readline().split()
                self.refused("filecopy", "send", "127.0.0.1", port, source, "tcp")
                _, complaint = receiver.communicate(timeout=PATIENCE)
            self.assertEqual(receiver.returncode, 1, complaint)
            self.assertIn("No space left", complaint)

    def test_key_value_server(self) -> None:
        server, port = self.serve("kv", "serve", "0")

        def ask(*words: str, code: int = 0) -> str:
            return self.output(self.started("kv", "127.0.0.1", port, *words), code=code)

        long = "v" * 100_000
        self.assertEqual(ask("get", "key", code=1), "not found\n")
        self.assertEqual(ask("set", "key", "value"), "stored\n")
        self.assertEqual(ask("set", "other", long), "stored\n")
        self.assertEqual(ask("get", "key"), "value\n")
        self.assertEqual(ask("get", "other"), long + "\n")
        self.assertEqual(ask("set", "key", ""), "stored\n")
        self.assertEqual(ask("get", "key"), "\n")
        self.assertEqual(ask("delete", "key"), "deleted\n")
        self.assertEqual(ask("delete", "key", code=1), "not found\n")
        self.assertIsNone(server.poll())

    def test_ports(self) -> None:
        for port in ("", "x", "12x", "-1", "65536", "99999999999999999999", " 1", "1.5"):
            for name, arguments in (
                ("echo", ("serve", port)),
                ("echo", ("127.0.0.1", port)),
                ("filecopy", ("receive", port, "copy")),
                ("filecopy", ("send", "127.0.0.1", port, __file__)),
                ("kv", ("serve", port)),
                ("kv", ("127.0.0.1", port, "get", "key")),
            ):
                with self.subTest(name=name, arguments=arguments):
                    process = self.started(name, *arguments)
                    _, complaint = process.communicate(timeout=PATIENCE)
                    self.assertEqual(process.returncode, 2)
                    self.assertEqual(complaint, f'PORT is a number from 0 to 65535, not "{port}"\n')

    def test_output_that_cannot_be_written(self) -> None:
        _, echo = self.serve("echo", "serve", "0")
        _, kv = self.serve("kv", "serve", "0")
        for command in (("echo", "serve", "0"), ("echo", "127.0.0.1", echo), ("kv", "127.0.0.1", kv, "set", "k", "v")):
            with self.subTest(command=command), open("/dev/full", "wb") as full:
                ran = subprocess.run(
                    [os.path.join(FOLDER, command[0]), *command[1:]],
                    input="a line\n",
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=PATIENCE,
                )
                self.assertEqual(ran.returncode, 1, ran.stderr)
                self.assertIn("No space left", ran.stderr)

    def test_a_source_without_a_size(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            fifo = os.path.join(folder, "fifo")
            os.mkfifo(fifo)
            for source in (fifo, folder, "/dev/zero"):
                self.assertEqual(
                    self.refused("filecopy", "send", "127.0.0.1", "1", source), f"{source}: not a regular file\n"
                )

    def test_command_lines(self) -> None:
        for name in ("echo", "filecopy", "kv"):
            process = self.started(name)
            _, usage = process.communicate(timeout=PATIENCE)
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("Usage: ", usage)


if __name__ == "__main__":
    sys.exit(not unittest.main(exit=False).result.wasSuccessful())
