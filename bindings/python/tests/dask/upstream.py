#!/usr/bin/env python3
"""Distributed's own tests over ucx:// and over tcp://, side by side in this Python's environment.

    upstream.py SOURCE [--protocol ucx] [--out FOLDER] -- tests/test_core.py shuffle/tests -k ...

SOURCE: a folder `distributed` with the folders `tests` of the installed version or one near it. Releases on PyPI have
none; a checkout has them, and Debian's package python3-distributed (dpkg -x). After -- come arguments of pytest, with
paths from the folder `distributed` on. Besides distributed and hawser-ucx it needs pytest, pytest-timeout and what the
tests use: pandas, pyarrow.

Says which tests pass over tcp and not over the other, also when they run once more by themselves (some listen at fixed
ports, or measure time), or take more than three times as long; the exit status is 1 if a test fails so and is not among
those that can only pass over tcp.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).resolve().parent

# What a test over another protocol cannot pass, and why.
ONLY_TCP = {
    "test_tcp_specific": "the scheme is written into the test",
    "test_server": "the scheme is written into the test",
    "test_transports_tcp_port": "asks for tcp by name",
    "test_protocol_tcp": "asks for tcp by name",
    "test_comm_closed_on_write_error": "replaces the write() of tornado's stream",
    "test_async_listener_stop": "replaces the backend of tcp",
    "test_handshake_slow_comm": "replaces the backend of tcp",
    "test_connection_pool_catch_all_cancellederrors": "replaces the backend of tcp",
    "test_connection_pool_close_while_connecting": "replaces the backend of tcp",
    "test_connection_pool_outside_cancellation": "replaces the backend of tcp",
    "test_multiple_listeners": "asks for tcp by name",
    "test_dashboard_host": "asks for tcp by name",
    "test_only_local_access": "asks for tcp by name",
    "test_remote_access": "asks for tcp by name",
    "test_client_num_fds": "counts descriptors while connections are made for later",
}

CONFTEST = """
from distributed.utils_test import *  # noqa: F403
pytest_plugins = ["upstream_plugin"{leaks}]
"""

INI = "[pytest]\naddopts = -p no:asyncio\n"


def tree(source: Path, out: Path, protocol: str) -> Path:
    """The installed package with the tests, which are made to ask for the protocol."""
    folder = out / protocol
    shutil.rmtree(folder, ignore_errors=True)
    spec = importlib.util.find_spec("distributed")
    assert spec is not None and spec.origin is not None
    package = folder / "distributed"
    shutil.copytree(Path(spec.origin).parent, package, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    for tests in source.rglob("tests"):
        into = package / tests.relative_to(source)
        shutil.copytree(tests, into)
        (into / "__init__.py").touch()
        for file in into.rglob("*.py"):
            file.write_text(adapted(file.read_text(), protocol))
    leaks = ', "distributed.pytest_resourceleaks"' if (package / "pytest_resourceleaks.py").exists() else ""
    (folder / "conftest.py").write_text(CONFTEST.format(leaks=leaks))
    (folder / "pytest.ini").write_text(INI)
    return folder


def adapted(text: str, protocol: str) -> str:
    # Debian's packages have this as a decorator, which newer versions of pytest refuse.
    text = re.sub(r'^ *@pytest\.importorskip\("\w+"\)\n', "", text, flags=re.M)
    if protocol == "tcp":
        return text
    text = text.replace("tcp://", f"{protocol}://")
    return re.sub(
        r"^(\s*)from distributed\.comm\.tcp import TCP$",
        r"\1from distributed.comm import Comm as TCP",
        text,
        flags=re.M,
    )


def is_path(folder: Path, argument: str) -> bool:
    return (folder / "distributed" / argument.partition("::")[0]).exists()


def start(folder: Path, protocol: str, arguments: list[str], name: str = "result") -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), str(HERE), os.environ.get("PYTHONPATH", "")]),
        "HAWSER_UPSTREAM_PROTOCOL": protocol,
        "DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME": protocol,
    }
    paths = [f"distributed/{a}" if is_path(folder, a) else a for a in arguments]
    command = [sys.executable, "-m", "pytest", "-q", "--tb=native", "--timeout=90", "--timeout-method=signal"]
    with open(folder / f"{name}.txt", "wb") as log:
        return subprocess.Popen(
            [*command, f"--junit-xml={folder}/{name}.xml", *paths], cwd=folder, env=environment, stdout=log, stderr=log
        )


def results(folder: Path, name: str = "result") -> dict[str, tuple[str, float]]:
    """Each test's outcome and seconds."""
    found = {}
    for case in ElementTree.parse(folder / f"{name}.xml").iter("testcase"):
        outcomes = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}::{case.get('name')}"] = (*outcomes, "passed")[0], float(case.get("time", 0))
    return found


def only_tcp(tcp: dict[str, tuple[str, float]], other: dict[str, tuple[str, float]]) -> list[str]:
    """The tests that pass over tcp alone."""
    return [
        name
        for name, (outcome, _) in other.items()
        if tcp.get(name.replace("ucx://", "tcp://"), ("absent",))[0] == "passed" != outcome
    ]


def reason(name: str) -> str | None:
    return ONLY_TCP.get(name.rpartition("::")[2].partition("[")[0])


def argument(folder: Path, name: str) -> str:
    """What pytest calls a test of the results: these have dots where a path or a class begins."""
    words, _, test = name.partition("::")
    path, *parts = words.split(".")
    while not (folder / f"{path}.py").exists():
        path += f"/{parts.pop(0)}"
    return "::".join([f"{path}.py", *parts, test])


def again(folder: Path, protocol: str, names: list[str], options: list[str]) -> dict[str, tuple[str, float]]:
    """The results of tests that run by themselves now."""
    start(folder, protocol, [*options, *(argument(folder, name) for name in names)], "again").wait()
    return results(folder, "again")


def compare(tcp: dict[str, tuple[str, float]], other: dict[str, tuple[str, float]]) -> int:
    """Prints what differs; gives how many tests only tcp passes without a reason."""
    failed = only_tcp(tcp, other)
    for name in failed:
        print(f"{other[name][0]}: {name}{f' ({why})' if (why := reason(name)) else ''}")
    for name, (outcome, seconds) in other.items():
        before, once = tcp.get(name.replace("ucx://", "tcp://"), ("absent", 0.0))
        if before == outcome == "passed" and seconds > 3 * once + 0.5:
            print(f"slow: {name}: {seconds:.1f} s, {once:.1f} s over tcp")
    return sum(reason(name) is None for name in failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--protocol", default="ucx")
    parser.add_argument("--out", type=Path, default=Path("/tmp/hawser-upstream"))
    mine, arguments = sys.argv[1:], []
    if "--" in mine:
        mine, arguments = mine[: mine.index("--")], mine[mine.index("--") + 1 :]
    args = parser.parse_args(mine)
    folders = {name: tree(args.source, args.out, name) for name in ("tcp", args.protocol)}
    # At once, so that both have the same machine.
    for run in [start(folder, name, arguments) for name, folder in folders.items()]:
        run.wait()
    both = [results(folder) for folder in folders.values()]
    if doubtful := [name for name in only_tcp(*both) if reason(name) is None]:
        folder = folders[args.protocol]
        options = [a for a in arguments if not is_path(folder, a)]
        both[1] |= again(folder, args.protocol, doubtful, options)
    for name, found in zip(folders, both, strict=True):
        print(f"{name}: {sum(outcome == 'passed' for outcome, _ in found.values())} of {len(found)} passed")
    return 1 if compare(*both) else 0


if __name__ == "__main__":
    sys.exit(main())
