"""The programs of bindings/python/examples, as a reader would run them. TIMEOUT: 240"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ucp_support import event_loop_policy  # noqa: F401

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def start(name, *args):
    command = [sys.executable, EXAMPLES / f"{name}.py", *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextlib.contextmanager
def running(name, *args):
    """A program that says its port first."""
    process = start(name, *args)
    try:
        yield process, int(process.stdout.readline())
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def output(name, *args):
    process = start(name, *args)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return text


def test_echo():
    with running("echo", "serve") as (server, port):
        assert output("echo", "send", "127.0.0.1", port, "hello", "", "again") == "hello\n\nagain\n"
        assert output("echo", "send", "127.0.0.1", port, "other") == "other\n"
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0


@pytest.mark.parametrize("size", [0, 1, (4 << 20) * 3 + 5])
def test_broadcast(tmp_path, size):
    original = tmp_path / "original"
    original.write_bytes(os.urandom(size))
    with running("broadcast", "send", original, 3) as (sender, port):
        receivers = [start("broadcast", "receive", "127.0.0.1", port, tmp_path / f"copy{i}") for i in range(3)]
        for i, receiver in enumerate(receivers):
            text, _ = receiver.communicate(timeout=120)
            assert receiver.returncode == 0 and text.startswith(f"{size} bytes")
            assert (tmp_path / f"copy{i}").read_bytes() == original.read_bytes()
        assert sender.wait(20) == 0


@pytest.mark.parametrize("arguments", [(), (4, 10), (2, 1000)])
def test_all_to_all(arguments):
    count, size = arguments or (3, 300)
    assert output("all_to_all", *arguments) == f"{size} x {size} transposed by {count} processes\n"


@pytest.mark.parametrize("arguments", [(), (3, 1), (1, 300)])
def test_producer_consumer(arguments):
    consumers, items = arguments or (2, 100)
    expected = f"{items} items: {items} done by {consumers} consumers\n"
    assert output("producer_consumer", *arguments) == expected
