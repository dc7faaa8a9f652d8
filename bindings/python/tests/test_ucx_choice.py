"""Which copy of UCX a process takes when nobody chooses: the same one however Python was started."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import hawser

SHOW = "import hawser; print(hawser.library()['ucx_path'])"

# What programs do that set a title for ps: they write over the arguments that they were started with.
TITLE = f"""
import ctypes
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[45]), int(fields[46])
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, b"worker 1", 8)
{SHOW}
"""

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libucx") is None or os.path.isdir("/sys/class/infiniband"),
    reason="the wheel of UCX is not what is chosen here",
)


def automatic(**more):
    """The environment of a program for which nobody has chosen."""
    left_out = ("HAWSER_UCX", "VIRTUAL_ENV", "CONDA_PREFIX")
    return {name: value for name, value in os.environ.items() if name not in left_out} | more


def shown(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, **options).stdout.strip()


@pytest.fixture(scope="module")
def wheel():
    """What a child of multiprocessing takes: it is started by the full name of the interpreter."""
    path = shown(sys.executable, "-c", SHOW, env=automatic())
    assert "libucx" in path
    return path


@pytest.fixture(params=["beside the wheel", "elsewhere"])
def environment(request, tmp_path):
    """For a package that is installed, and for one that lies in a folder of its own."""
    if request.param != "elsewhere":
        return automatic
    shutil.copytree(Path(hawser.__file__).parent, tmp_path / "hawser")
    return lambda **more: automatic(PYTHONPATH=str(tmp_path), **more)


def test_started_by_a_name_on_the_path(wheel, environment, tmp_path):
    """As in a container whose PATH leads to an environment that nobody activated."""
    folder = os.path.dirname(sys.executable)
    path = os.pathsep.join([str(tmp_path), "", folder, os.environ["PATH"]])
    assert shown("python", "-c", SHOW, env=environment(PATH=path), executable=f"{folder}/python") == wheel


def test_started_under_a_relative_name(wheel, environment):
    assert shown("./python", "-c", SHOW, env=environment(), cwd=os.path.dirname(sys.executable)) == wheel


def test_a_process_that_changed_its_title(wheel):
    assert shown(sys.executable, "-c", TITLE, env=automatic()) == wheel
