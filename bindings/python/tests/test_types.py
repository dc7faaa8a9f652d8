"""Types, style, and what every public name says of itself: the same whatever the UCX. UCX: none"""

import enum
import inspect
import subprocess
import sys
from pathlib import Path

import hawser
import hawser.sync

HERE = Path(__file__).resolve().parent.parent


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
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
    ep, request = ("hawser._endpoint.Endpoint", "hawser._listener.Request")
    assert f"tuple[{ep}, {ep}, {request}]" in text, text
    assert "tuple[hawser.sync.Request, list[hawser.sync.Endpoint]]" in text, text
    assert hawser.Operation[int] is not hawser.Operation


USER_OF_UCP = """
import asyncio
from hawser import ucp, ucxx

async def serve(ep: ucp.Endpoint, listener: ucp.Listener, address: ucp.ucx_api.UCXAddress) -> None:
    try:
        reveal_type(await ep.recv(bytearray(1)))
    except (ucp.UCXError, ucp.UCXCanceled, ucp.UCXCloseError):
        await asyncio.gather(ep.send(b"1"), ep.close())

def made(context: ucxx.ApplicationContext, ep: ucxx.core.Endpoint, listener: ucxx.core.Listener) -> None:
    try:
        ucxx.reset()
    except ucxx.UCXError:
        ucxx.init()
"""


def test_types_of_who_comes_from_ucxpy(tmp_path):
    """The names that UCX-Py's and UCXX's programs use are there for type checkers, too."""
    program = tmp_path / "user.py"
    program.write_text(USER_OF_UCP)
    assert '"bool"' in run(sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, program)


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
