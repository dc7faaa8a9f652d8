# TIMEOUT: 300
"""The oldest distributed that is supported, in an environment of its own: .venv-dask2022, made by scripts/setup.sh."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import hawser

PYTHON = Path(sys.prefix).with_name(".venv-dask2022") / "bin/python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"{PYTHON} is missing: scripts/setup.sh makes it")

ORDERS = [
    "import dask",
    "import dask.distributed",
    "import distributed",
    "import distributed.comm",
    "import distributed.comm.ucx",
    "import distributed.deploy.local",
    "import dask.sizeof",
    "import hawser.dask",
]

CLUSTER = """
import dask.array as da, distributed, numpy as np
from distributed import Client, LocalCluster

if __name__ == "__main__":
    assert distributed.__version__ == "2022.12.1"
    for processes in (True, False):
        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(protocol="ucx", processes=processes, **options) as c:
            with Client(c) as client:
                client.wait_for_workers(2)
                a, b = client.scheduler_info()["workers"]
                assert a.startswith("ucx://") and b.startswith("ucx://"), (a, b)
                assert type(client.scheduler_comm.comm).__module__ == "hawser.dask._comm"
                x = client.submit(np.arange, 3_000_000, workers=[a])
                assert client.submit(lambda x: int(x.sum()), x, workers=[b]).result(60) == sum(range(3_000_000))
                y = da.ones((1000, 1000), chunks=(250, 250))
                assert (y + y.T).sum().compute() == 2e6
    print("computed")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with what the wheel of this package and UCX's install, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    site = Path(hawser.__file__).parents[1]
    names = {file.parts[0] for name in ("hawser-ucx", "libucx-cu12") for file in metadata.files(name) or []}
    for name in names - {"..", "__pycache__"}:
        (folder / name).symlink_to(site / name)
    return folder


def run(place, tmp_path, program):
    (tmp_path / "program.py").write_text(program)
    env = {**os.environ, "PYTHONPATH": str(place)}
    done = subprocess.run(
        [PYTHON, tmp_path / "program.py"], capture_output=True, text=True, timeout=120, env=env, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize("order", ORDERS)
def test_ucx_is_owned_whatever_is_imported_first(place, tmp_path, order):
    program = f"""{order}
import distributed
from distributed.comm.registry import get_backend
print(*(type(get_backend(scheme)).__module__ for scheme in ("ucx", "hawser")))"""
    out, err = run(place, tmp_path, program)
    assert out == ["hawser.dask._backend"] * 2
    assert "Traceback" not in err


def test_clusters_compute(place, tmp_path):
    assert run(place, tmp_path, CLUSTER)[0] == ["computed"]
