"""The package itself: types, the command line, the example of the README."""

import enum
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import hawser
import hawser.sync

HERE = Path(__file__).resolve().parent.parent


@pytest.fixture
def event_loop_policy():
    import asyncio

    return asyncio.DefaultEventLoopPolicy()


def run(*command, timeout=100):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_types():
    assert "no issues" in run(
        sys.executable, "-m", "mypy", "--config-file", HERE / "pyproject.toml", HERE / "src/hawser"
    )


USER = """
import asyncio
import hawser
import hawser.sync

async def talk(ep: hawser.Endpoint, key: hawser.RemoteKey, kept: list[hawser.Operation[None]]) -> bytearray:
    data = bytearray(8)
    length: int = await ep.recv(data)
    whole: bytearray = await ep.recv()
    both = await asyncio.gather(ep.recv(data), key.atomic("add", 1))
    task: asyncio.Task[int] = asyncio.create_task(ep.stream_recv(data))
    lengths: tuple[int, ...] = (await ep.recv_multi()).lengths
    kept.append(ep.flush(timeout=1.0))
    header, body = await ep.recv_am()
    reveal_type((length, both, lengths, header))
    return whole[: await task]

async def serve(any: hawser.Listener) -> None:
    reveal_type((await any.accept(), await hawser.listen().accept(), await hawser.listen(explicit=True).accept()))
    async for ep in any:
        await ep.close()

def serve_blocking() -> None:
    asking = hawser.sync.listen(explicit=True)
    reveal_type((asking.accept(), [ep for ep in hawser.sync.listen()]))
"""


def test_types_of_a_user(tmp_path):
    """An operation is generic in its result, a listener in what it gives."""
    program = tmp_path / "user.py"
    program.write_text(USER)
    text = run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, program)
    assert "tuple[int, tuple[int, int], tuple[int, ...], bytes]" in text, text
    ep, request = ("hawser._endpoint.Endpoint", "hawser._endpoint.Request")
    assert f"tuple[{ep}, {ep}, {request}]" in text, text
    assert "tuple[hawser.sync.Request, list[hawser.sync.Endpoint]]" in text, text
    assert hawser.Operation[int] is not hawser.Operation


def test_style():
    run(sys.executable, "-m", "ruff", "check", HERE)


def test_names():
    for name in hawser.__all__:
        assert hasattr(hawser, name)
    assert (Path(hawser.__file__).parent / "py.typed").exists()


def public(*modules):
    """The classes, functions and methods of modules, by name."""
    for module in modules:
        for name in module.__all__:
            thing = getattr(module, name)
            if callable(thing):
                yield name, thing
            if isinstance(thing, type) and not issubclass(thing, (Exception, enum.Enum)):
                yield from ((f"{name}.{m}", each) for m, each in vars(thing).items() if m[0] != "_" and callable(each))


def test_help():
    """Everything says what it does, and what it takes. Types that cannot be called have no signature."""
    made_by_calls = {"Buffer", "Operation", "Segments"}
    for name, thing in public(hawser, hawser.sync):
        assert inspect.getdoc(thing), name
        if name not in made_by_calls:
            assert inspect.signature(thing) is not None, name


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
