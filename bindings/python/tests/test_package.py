"""The package itself: the command line, the example of the README."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent.parent


@pytest.fixture
def event_loop_policy():
    import asyncio

    return asyncio.DefaultEventLoopPolicy()


def run(*command, timeout=100):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_readme():
    codes = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)
    assert len(codes) == 2
    for code in codes:
        assert run(sys.executable, "-X", "dev", "-W", "error", "-c", code) == "bytearray(b'hello')\n"


def test_info():
    text = run(sys.executable, "-m", "hawser", "info")
    assert "UCX" in text and "resource" in text


def test_perf():
    text = run(sys.executable, "-m", "hawser", "perf", "--sizes", "8,1000", "--seconds", "0.1")
    assert re.search(r"^ +8 +[\d.]+", text, re.M) and re.search(r"^ +1000 +[\d.]+", text, re.M)


@pytest.mark.parametrize("name", ["missing/plot.png", "plot.unknown", "."])
def test_no_plot_is_refused_before_anything_is_measured(tmp_path, name):
    command = [sys.executable, "-m", "hawser", "perf", "--seconds", "100", "--plot", tmp_path / name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done.stderr


def test_what_fails_is_said_in_one_line():
    environment = {**os.environ, "HAWSER_UCX": "/nonexistent"}
    command = [sys.executable, "-m", "hawser", "info"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("hawser: NO_UCX")


@pytest.mark.parametrize("arguments", [["--sizes", "8,"], ["--seconds", "fast"], ["--plot", ""]])
def test_perf_says_what_is_wrong_with_an_option(arguments):
    command = [sys.executable, "-m", "hawser", "perf", "--sizes", "8", "--seconds", "100", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "value:" not in done.stderr, done.stderr


def test_perf_of_ends_that_fail():
    """Each says why in a line of its own."""
    environment = {**os.environ, "HAWSER_UCX": "/nonexistent"}
    command = [sys.executable, "-m", "hawser", "perf", "--sizes", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 1 and "hawser: NoUcxError: NO_UCX" in done.stderr
    assert "Traceback" not in done.stderr and "hawser failed" in done.stderr, done.stderr


@pytest.mark.parametrize("peer", ["hawser", "sockets"])
def test_perf_is_interrupted(peer):
    """Quietly, with both of its ends: a terminal tells all three."""
    command = [sys.executable, "-m", "hawser", "perf", "--sizes", "8", "--seconds", "100", "--peers", peer]
    program = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
    while len(children.read_text().split()) < 3:  # and a process of multiprocessing
        assert program.poll() is None
    os.killpg(program.pid, signal.SIGINT)
    assert program.communicate(timeout=60) == ("", None)
    assert program.returncode == 128 + signal.SIGINT


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&-"])
def test_programs_without_a_stream(redirection):
    for what in ("info", "perf --sizes 8 --seconds 0.01"):
        command = f"{sys.executable} -m hawser {what} {redirection}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stderr == "", done.stderr


def test_perf_plot(tmp_path):
    """Every peer that is installed, in one run."""
    plot = tmp_path / "plot.png"
    arguments = ["--sizes", "8,100000", "--seconds", "0.05", "--plot", plot]
    text = run(sys.executable, "-m", "hawser", "perf", *arguments)
    names = ["hawser", "hawser-sync", "asyncio", "uvloop", "sockets", "pyzmq", "mpi4py"]
    assert re.findall(r"([\w-]+) us", text)[: len(names)] == names
    assert all(re.search(rf"^ +{size}( +[\d.]+ +[\d.]+)+$", text, re.M) for size in (8, 100000))
    assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 10_000


def test_perf_of_a_peer_that_is_not_there():
    command = [sys.executable, "-m", "hawser", "perf", "--peers", "carrier-pigeon"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "carrier-pigeon: no such peer" in done.stderr


@pytest.mark.parametrize("first", ["", "import hawser"])
def test_other_interpreters_are_refused(first):
    """Whether or not the main one has it already; and that one can use it after."""
    pytest.importorskip("_xxsubinterpreters", reason="this Python has no such module")
    program = f"""
import _xxsubinterpreters as interpreters
{first}
other = interpreters.create()
for _ in range(2):
    try:
        interpreters.run_string(other, "import hawser.sync")
    except interpreters.RunFailedError as e:
        print(e)
interpreters.destroy(other)
import hawser.sync
hawser.Context().close()
"""
    # From 3.12 on Python itself may refuse first.
    refusals = "works in the main interpreter only|does not support loading in subinterpreters"
    assert len(re.findall(refusals, run(sys.executable, "-c", program))) == 2


def test_a_second_import_gives_the_same_core():
    program = """
import sys, hawser._core as one
del sys.modules["hawser._core"], one.__spec__
import importlib
assert importlib.import_module("hawser._core") is one
"""
    run(sys.executable, "-c", program)
