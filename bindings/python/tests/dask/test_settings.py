"""Who owns ucx://, and what the settings of Dask mean for UCX. Each program is a process of its own."""

import importlib
import os
import subprocess
import sys
from importlib import resources

import dask
import jsonschema
import pytest
import yaml
from distributed.comm import connect, listen

from hawser.dask import _config, _setting, _usable, _workers

OWNER = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
import distributed
from distributed.comm.registry import backends, get_backend
print(type(get_backend("ucx")).__module__, type(get_backend("hawser")).__module__)
"""


def run(program, **env):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr


def test_ucx_is_owned_without_configuration():
    assert run(OWNER)[0] == ["hawser.dask._backend"] * 2


def test_old_names_are_the_classes_in_use():
    program = """
import asyncio
from distributed.comm import ucx
from distributed.comm.registry import get_backend
assert isinstance(get_backend("ucx"), ucx.UCXBackend)

async def main():
    async with ucx.UCXListener("ucx://127.0.0.1:0", print) as listener:
        print(listener.get_host_port()[0], listener.contact_address.split(":")[0])

asyncio.run(main())"""
    assert run(program)[0] == ["127.0.0.1", "ucx"]


def test_owner_can_be_none():
    out, _ = run(OWNER, DASK_DISTRIBUTED__COMM__UCX__OWNER="none")
    assert out[0].startswith("distributed") and out[1] == "hawser.dask._backend"


@pytest.mark.parametrize(
    "order",
    [
        "import dask",
        "import hawser",
        "import hawser.dask",
        "import distributed.comm",
        "import distributed.comm.ucx",
        "import distributed.deploy.local",
        "import dask.sizeof",
    ],
)
def test_order_of_imports_does_not_matter(order):
    assert run(order + OWNER)[0] == ["hawser.dask._backend"] * 2


def test_distributed_ucxx_keeps_the_scheme(tmp_path):
    (tmp_path / "distributed_ucxx.py").write_text(
        "from distributed.comm.registry import backends\n"
        "from distributed.comm.tcp import TCPBackend\n"
        "backends['ucx'] = TCPBackend()\n"
    )
    out, err = run(OWNER, PYTHONPATH=str(tmp_path))
    assert out[0] == "distributed.comm.tcp" and err.count("left to distributed-ucxx") == 1
    out, _ = run(OWNER, PYTHONPATH=str(tmp_path), DASK_DISTRIBUTED__COMM__UCX__OWNER="hawser")
    assert out[0] == "hawser.dask._backend"


def test_nothing_of_dask_is_touched_without_dask():
    out, _ = run("import sys, hawser; print([m for m in sys.modules if m.split('.')[0] in ('dask', 'distributed')])")
    assert out == ["[]"]


# ---- Keys ----


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in ("UCX_TLS", "UCX_NET_DEVICES", "UCX_SOCKADDR_TLS_PRIORITY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("namespace", _setting.NAMESPACES)
@pytest.mark.parametrize(
    "keys, tls",
    [
        ({}, None),
        ({"cuda-copy": True}, None),
        ({"tcp": True}, "tcp,sm,self"),
        ({"tcp": True, "cuda-copy": True}, "tcp,sm,self,cuda_copy"),
        ({"infiniband": True}, "rc,tcp,sm,self"),
        ({"nvlink": True}, "tcp,sm,self,cuda_copy,cuda_ipc"),
        ({"infiniband": True, "nvlink": True}, "rc,tcp,sm,self,cuda_copy,cuda_ipc"),
    ],
)
def test_transports(namespace, keys, tls):
    with dask.config.set({f"{namespace}.{key}": value for key, value in keys.items()}):
        config = _config.ucx_config()
    assert config.get("TLS") == tls
    assert config.get("SOCKADDR_TLS_PRIORITY") == (tls and "tcp")


def test_precedence(monkeypatch, caplog):
    keys = {
        "distributed.comm.ucx.tcp": True,
        "distributed.comm.ucx.rdmacm": True,
        "distributed.comm.ucx.environment": {"tls": "rc", "rndv-thresh": 8192},
    }
    with dask.config.set(keys):
        assert _config.ucx_config() == {
            "TLS": "tcp,sm,self",
            "SOCKADDR_TLS_PRIORITY": "rdmacm",
            "RNDV_THRESH": "8192",
        }
        assert "UCX_TLS" in caplog.text
        monkeypatch.setenv("UCX_TLS", "tcp,self")
        assert "TLS" not in _config.ucx_config()


def test_environment_variables_of_dask():
    program = "from hawser.dask import _config; print(_config.ucx_config()['TLS'])"
    assert run(program, DASK_DISTRIBUTED__COMM__UCX__INFINIBAND="True")[0] == ["rc,tcp,sm,self"]
    assert run(program, DASK_DISTRIBUTED_UCXX__TCP="True")[0] == ["tcp,sm,self"]


async def test_unusable_settings_are_refused_at_once():
    with dask.config.set({"distributed.comm.ucx.environment": {"tls": "no_such_transport"}}):
        with pytest.raises(RuntimeError, match="no_such_transport"):
            await connect("ucx://127.0.0.1:1", timeout=30)


REFUSED = {
    "infiniband": ({"infiniband": True}, "transport rc cannot be used: this machine has no InfiniBand"),
    "rdmacm": ({"rdmacm": True}, "rdmacm cannot be used: this machine has no InfiniBand"),
    "environment": ({"environment": {"tls": "rc,tcp"}}, "transport rc cannot be used"),
    "nvlink": ({"nvlink": True}, "create-cuda-context: there is no CUDA driver"),
    "cuda-copy": ({"tcp": True, "cuda-copy": True}, "create-cuda-context: there is no CUDA driver"),
    "create-cuda-context": ({"create-cuda-context": True}, "create-cuda-context: there is no CUDA driver"),
    "net-devices": ({"net-devices": "mlx9_7:1"}, "device mlx9_7:1 cannot be used; this machine has .*lo"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_this_machine_does_not_have_is_refused_with_the_reason(name):
    keys, why = REFUSED[name]
    if ("CUDA" in why and _usable.no_cuda() is None) or ("InfiniBand" in why and _usable.no_infiniband() is None):
        pytest.skip("this machine has what is to be missing")
    with dask.config.set({f"distributed.comm.ucx.{key}": value for key, value in keys.items()}):
        with pytest.raises(RuntimeError, match=why):
            await connect("ucx://127.0.0.1:1", timeout=30)
        with pytest.raises(RuntimeError, match=why):
            await listen("ucx://127.0.0.1:0", print)


async def test_what_the_environment_asks_for_is_only_said(monkeypatch, caplog):
    if _usable.no_infiniband() is None:
        pytest.skip("this machine has what is to be missing")
    monkeypatch.setenv("UCX_TLS", "rc,tcp,self")
    try:
        async with listen("ucx://127.0.0.1:0", print) as listener:
            assert listener.contact_address.startswith("ucx://127.0.0.1:")
    finally:
        _workers._close_all()
    assert "transport rc cannot be used: this machine has no InfiniBand" in caplog.text


FOUND = {("tcp", "eth0"), ("tcp", "lo"), ("posix", "memory"), ("rc_mlx5", "mlx5_0:1"), ("cuda_copy", "cuda")}


@pytest.mark.parametrize(
    "wanted, missing",
    [
        ("tcp,sm,self", ["self"]),
        ("rc,tcp", []),
        ("rc_x,ud", ["ud"]),
        ("ib:aux,cuda", []),
        ("cuda_ipc", ["cuda_ipc"]),
        ("all", []),
        ("^rc,ud", []),
        ("", []),
    ],
)
def test_missing_transports(wanted, missing):
    assert _usable.missing_transports(wanted, FOUND) == missing


@pytest.mark.parametrize(
    "wanted, missing", [("eth0", []), ("mlx5_0", []), ("mlx5_0:1,ib0", ["ib0"]), ("all", []), ("^eth0", []), ("", [])]
)
def test_missing_devices(wanted, missing):
    assert _usable.missing_devices(wanted, FOUND) == missing


@pytest.mark.skipif(_usable.no_cuda() is None, reason="this machine has a GPU, so nothing is refused")
@pytest.mark.parametrize("key", ["distributed-ucxx.rmm", "distributed.comm.ucx.rmm", "distributed.rmm"])
async def test_a_pool_of_rmm_is_refused_with_the_reason(key):
    with dask.config.set({f"{key}.pool-size": "1GB"}):
        with pytest.raises(RuntimeError, match=r"rmm\.pool-size cannot be had: there is no CUDA driver"):
            await connect("ucx://127.0.0.1:1", timeout=30)


def test_key_file(tmp_path):
    (tmp_path / "key").write_bytes(b"0123456789abcdef\n")
    with dask.config.set({"distributed.comm.ucx.psk-file": str(tmp_path / "key")}):
        assert _config.context_options()["psk"] == b"0123456789abcdef"


async def test_a_key_file_that_cannot_be_read_is_refused_at_once(tmp_path):
    with dask.config.set({"distributed.comm.ucx.psk-file": str(tmp_path / "none")}):
        with pytest.raises(RuntimeError, match=r"psk-file cannot be read: .*none"):
            await connect("ucx://127.0.0.1:1", timeout=30)


async def test_a_progress_mode_that_is_none_is_refused_by_name():
    with dask.config.set({"distributed.comm.ucx.progress": "nonsense"}):
        with pytest.raises(ValueError, match="blocking, thread, thread-polling, not 'nonsense'"):
            await connect("ucx://127.0.0.1:1", timeout=30)


@pytest.mark.parametrize(
    "key, value",
    [
        ("tcp", "maybe"),
        ("direct-reads", "maybe"),
        ("learn-bandwidths", 2),
        ("write-ahead", -5),
        ("pool-size", "-1"),
        ("pool-size", "many"),
        ("close-timeout", "-3s"),
        ("connect-timeout", 0),
        ("connect-timeout", "soon"),
        ("environment", "TLS=tcp"),
    ],
)
async def test_a_value_that_cannot_be_is_refused_by_name(key, value, monkeypatch):
    monkeypatch.setattr(_workers, "_contexts", {})
    monkeypatch.setattr(_workers, "_workers", {})
    with dask.config.set({f"distributed.comm.ucx.{key}": value}):
        with pytest.raises(ValueError, match=f"distributed.comm.ucx.{key} is {value!r}; it must be"):
            await connect("ucx://127.0.0.1:1", timeout=30)


@pytest.mark.parametrize("value", ["abc", float("nan"), float("inf"), []])
async def test_a_timeout_of_dask_that_is_none_is_named(value, monkeypatch):
    monkeypatch.setattr(_workers, "_contexts", {})
    monkeypatch.setattr(_workers, "_workers", {})
    with dask.config.set({"distributed.comm.timeouts.tcp": value}):
        with pytest.raises(ValueError, match=r"distributed.comm.timeouts.tcp is .*; it must be a time"):
            await connect("ucx://127.0.0.1:1", timeout=30)


@pytest.mark.parametrize("value, chosen", [("true", True), ("Off", False), (1, True), (False, False), (None, None)])
def test_how_flags_are_written(value, chosen):
    with dask.config.set({"distributed.comm.ucx.tcp": value}):
        assert _setting.flag("tcp") is chosen


@pytest.mark.parametrize(
    "timeout, idle, interval, probes",
    [("30s", 10, 2, 10), ("2s", 1, 1, 1), ("5s", 1, 1, 4), ("600s", 150, 45, 10), (None, 10, 2, 10)],
)
def test_a_peer_may_be_silent_as_long_as_over_tcp(timeout, idle, interval, probes):
    with dask.config.set({"distributed.comm.timeouts.tcp": timeout}):
        config = _config.context_options()["config"]
    assert config["TCP_KEEPIDLE"] == f"{idle}s"
    assert config["TCP_KEEPINTVL"] == f"{interval}s"
    assert config["TCP_KEEPCNT"] == str(probes)


def test_settings_of_keepalive_are_kept(monkeypatch):
    with dask.config.set({"distributed.comm.ucx.environment": {"tcp-keepidle": "3s"}}):
        config = _config.context_options()["config"]
        assert config["TCP_KEEPIDLE"] == "3s" and "TCP_KEEPCNT" not in config
    monkeypatch.setenv("UCX_TCP_KEEPCNT", "5")
    assert "TCP_KEEPIDLE" not in _config.context_options()["config"]


def test_the_first_name_of_the_settings_still_counts():
    with dask.config.set({"distributed.ucx.tcp": True}):
        assert _config.ucx_config()["TLS"].startswith("tcp")


def test_defaults_fit_the_schema():
    files = resources.files("hawser.dask")
    schema = yaml.safe_load(files.joinpath("dask-schema.yaml").read_text())
    defaults = yaml.safe_load(files.joinpath("dask.yaml").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(defaults, schema)
    keys = set(defaults["distributed"]["comm"]["ucx"])
    assert keys == set(schema["$defs"]["ucx"]["properties"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"distributed": {"comm": {"ucx": {"tcp": "yes"}}}}, schema)


# ---- What UCX-Py's and UCXX's functions tell of Dask's UCX ----


@pytest.mark.parametrize("name", ["ucp", "ucxx"])
@pytest.mark.parametrize(
    ("settings", "tls", "shared"),
    [({"tcp": True}, "tcp,sm,self", True), ({"environment": {"tls": "tcp,self"}}, "tcp,self", False)],
)
async def test_the_predecessors_functions_tell_dask_s_settings(name, settings, tls, shared):
    api = importlib.import_module(f"hawser.{name}")
    api.reset()
    _workers._close_all()
    before = api.get_config()
    assert before["TLS"] != tls
    with dask.config.set({"distributed.comm.ucx": settings}):
        listener = await listen("ucx://127.0.0.1:0", print)
        try:
            config = api.get_config()
            assert config["TLS"] == tls
            if "tcp" in settings:
                assert config["SOCKADDR_TLS_PRIORITY"] == "tcp"
            transports = api.get_active_transports()
            assert "tcp" in transports and ("posix" in transports) == shared
        finally:
            listener.stop()
            _workers._close_all()
    assert api.get_config() == before


@pytest.mark.parametrize("name", ["ucp", "ucxx"])
async def test_an_own_context_of_theirs_is_told_of_instead(name):
    api = importlib.import_module(f"hawser.{name}")
    api.reset()
    api.init(options={"TLS": "tcp,self"}, env_takes_precedence=False)
    try:
        with dask.config.set({"distributed.comm.ucx": {"tcp": True}}):
            (await listen("ucx://127.0.0.1:0", print)).stop()
            assert api.get_config()["TLS"] == "tcp,self"
            assert "posix" not in api.get_active_transports()
    finally:
        api.reset()
        _workers._close_all()
