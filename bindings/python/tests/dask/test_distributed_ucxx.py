# TIMEOUT: 180
"""The distribution hawser-distributed-ucxx: what Dask-CUDA imports, in an environment of its own."""

import os
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "distributed-ucxx"


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An environment with that distribution, and everything of this environment behind it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    python = folder / "bin/python"
    site = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    Path(site, "base.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--no-deps", SOURCE], check=True, timeout=120)
    return python


def run(python, program, cwd=None, **env):
    own = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
    done = subprocess.run(
        [python, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        env={**own, **env},
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


OWNER = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
import distributed, distributed_ucxx
from distributed.comm.registry import get_backend
print(*(type(get_backend(scheme)).__module__ for scheme in ("ucx", "ucxx", "hawser")))
"""
OURS = "hawser.dask._backend"


def test_it_changes_no_owner(python):
    out, err = run(python, OWNER)
    assert out == [OURS] * 3 and "left to" not in err
    assert run(python, "import distributed.comm.ucx" + OWNER)[0] == [OURS] * 3
    assert run(python, "import distributed_ucxx" + OWNER)[0] == [OURS] * 3
    assert run(python, "import hawser.dask" + OWNER)[0] == [OURS] * 3


def test_dask_is_not_loaded_for_it(python):
    program = "import sys, hawser; print([m for m in sys.modules if m.split('.')[0] in ('dask', 'distributed_ucxx')])"
    assert run(python, program)[0] == ["[]"]


BY_NAME = """
import asyncio, distributed_ucxx, distributed.comm.ucx
from distributed.comm import connect
from distributed.comm.registry import get_backend

async def talk(listener_class, connector_class):
    async def handle(comm):
        await comm.write(await comm.read())
        await comm.close()

    listener = await listener_class("ucx://127.0.0.1:0", handle)
    try:
        host, port = listener.get_host_port()
        assert listener.listen_address == listener.contact_address == f"ucx://{host}:{port}"
        comm = await connect(listener.contact_address)
        await comm.write("over ucx")
        assert comm.peer_address == listener.contact_address
        print(await comm.read())
        comm = await connector_class().connect(f"{host}:{port}")
        print(comm.peer_address == f"ucx://{host}:{port}")
        comm.abort()
    finally:
        listener.stop()

asyncio.run(talk(distributed_ucxx.ucxx.UCXXListener, distributed_ucxx.ucxx.UCXXConnector))
asyncio.run(talk(distributed.comm.ucx.UCXListener, distributed.comm.ucx.UCXConnector))

distributed_ucxx.ucxx = None
print(isinstance(get_backend("ucx"), distributed_ucxx.UCXXBackend))
print(isinstance(get_backend("ucxx"), distributed_ucxx.UCXXBackendLegacyPrefix))
"""


def test_its_classes_work_by_name(python):
    """A listener or connector made by hand is of ucx://; the backends are there whatever becomes of `ucxx`."""
    assert run(python, BY_NAME)[0] == ["over", "ucx", "True"] * 2 + ["True"] * 2


NAMES = """
import importlib
NAMES = ["", "._cuda_context", "._version", "._lib.arr", "._lib.libucxx", "._lib_async.continuous_ucx_progress",
    "._lib_async.exchange_peer_info", "._lib_async.utils_test", ".core", ".exceptions", ".testing", ".types", ".utils"]
import ucxx
for name in NAMES:
    if importlib.import_module("ucxx" + name) is not importlib.import_module("hawser.ucxx" + name):
        print(name)
"""
KEY = """
import pytest
from ucxx._lib_async.pytest_stash_keys import ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY as key
from hawser.ucxx._lib_async import pytest_stash_keys
print(key is pytest_stash_keys.ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY)
"""


def test_both_names_are_the_same_modules(python):
    assert run(python, NAMES)[0] == []
    assert run(python, KEY)[0] == ["True"]
    done = subprocess.run(
        [python, "-m", "ucxx.benchmarks.send_recv", "-n", "8"], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0 and "ucxx-async" in done.stdout, done.stderr


# ---- What Dask-CUDA does with it ----

INITIALIZE = """
import dask, distributed_ucxx
distributed_ucxx.config.setup_config()
settings = dask.config.get("distributed-ucxx")
settings.update({"tcp": True, "infiniband": None, "nvlink": None, "rdmacm": None})
dask.config.set({"distributed-ucxx": settings})

import distributed_ucxx.ucxx
assert distributed_ucxx.ucxx.ucxx is None
distributed_ucxx.ucxx.init_once()
assert distributed_ucxx.ucxx.ucxx is not None

from hawser.dask import _config
print(_config.ucx_config()["TLS"], distributed_ucxx.config.get_ucx_config("tcp"))
import ucxx
print("tcp" in ucxx.get_active_transports())
"""


def test_its_settings_are_read(python):
    env = {"DASK_DISTRIBUTED__COMM__UCX__ENVIRONMENT": "{'rndv-thresh': 4096}"}
    program = INITIALIZE + "print(_config.ucx_config()['RNDV_THRESH'])"
    assert run(python, program, **env)[0] == ["tcp,sm,self", "True", "True", "4096"]


CLUSTER = """
import distributed_ucxx
from distributed import Client, LocalCluster

if __name__ == "__main__":
    with LocalCluster(protocol="{0}", n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
            assert all(address.startswith("{0}://") for address in client.scheduler_info()["workers"])
            comms = [sending.comm for sending in cluster.scheduler.stream_comms.values()]
            assert comms and all(isinstance(comm, distributed_ucxx.ucxx.UCXX) for comm in comms)
    print("done")
"""


@pytest.mark.parametrize("protocol", ["ucx", "ucxx"])
def test_clusters(python, tmp_path, protocol):
    program = tmp_path / "cluster.py"
    program.write_text(CLUSTER.format(protocol))
    done = subprocess.run([python, program], capture_output=True, text=True, timeout=150)
    assert done.stdout == "done\n", done.stderr


# ---- Beside distributed-ucxx ----

# What matters of it: its name, and that importing it registers nothing; its entry points do.
RAPIDS = """
from distributed.comm.tcp import TCPBackend
class UCXXBackend(TCPBackend): pass
class UCXXBackendLegacyPrefix(TCPBackend): pass
"""
ENTRY_POINTS = """[distributed.comm.backends]
ucx = distributed_ucxx:UCXXBackend
ucxx = distributed_ucxx:UCXXBackendLegacyPrefix
"""


@pytest.fixture
def beside(tmp_path):
    """The environment's variables with which distributed-ucxx is there, too."""
    (tmp_path / "distributed_ucxx.py").write_text(RAPIDS)
    info = tmp_path / "distributed_ucxx_cu12-0.52.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: distributed-ucxx-cu12\nVersion: 0.52.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return {"PYTHONPATH": str(tmp_path)}


def test_one_setting_decides_beside_distributed_ucxx(python, beside):
    env = beside
    out, err = run(python, OWNER, **env)
    assert out == ["distributed_ucxx", "distributed_ucxx", OURS] and err.count("left to distributed-ucxx") == 1
    out, err = run(python, OWNER, **env, DASK_DISTRIBUTED__COMM__UCX__OWNER="hawser")
    assert out == [OURS, "distributed_ucxx", OURS] and "left to" not in err
    late = "import distributed.comm, distributed.comm.ucx" + OWNER
    assert run(python, late, **env, DASK_DISTRIBUTED__COMM__UCX__OWNER="hawser")[0][0] == OURS
    out, err = run(python, OWNER, **env, DASK_DISTRIBUTED__COMM__UCX__OWNER="none")
    assert out == ["distributed_ucxx", "distributed_ucxx", OURS] and "left to" not in err


WORKERS = """
import dask

def owner():
    from distributed.comm.registry import get_backend
    return type(get_backend("ucx")).__module__

# Not before: a worker's process runs what is above this line, and would set it by itself.
if __name__ == "__main__":
    {first}
    from distributed import Client, LocalCluster
    {then}
    with LocalCluster(n_workers=1, threads_per_worker=1, protocol={protocol!r}, dashboard_address=":0") as cluster:
        with Client(cluster) as client:
            print(owner(), *client.run(owner).values())
"""
HAWSER = 'dask.config.set({"distributed.comm.ucx.owner": "hawser"})'
CLAIM = "; import hawser.dask; hawser.dask.claim_ucx()"


def test_workers_of_a_nanny_decide_as_their_cluster_did(python, beside, tmp_path):
    """They get the configuration when they have decided already."""

    def owners(first="", then="", protocol="tcp"):
        (tmp_path / "program.py").write_text(WORKERS.format(first=first, then=then, protocol=protocol))
        return run(python, "import runpy; runpy.run_path('program.py', run_name='__main__')", cwd=tmp_path, **beside)[0]

    assert owners() == ["distributed_ucxx"] * 2
    assert owners(first=HAWSER, protocol="ucx") == [OURS] * 2
    assert owners(then=HAWSER + CLAIM, protocol="ucx") == [OURS] * 2
