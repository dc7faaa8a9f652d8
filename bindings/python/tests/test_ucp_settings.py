"""UCX-Py programs: names, options, environment, what is told of UCX. TIMEOUT: 240"""

import asyncio
import copy
import logging
import os
import subprocess
import sys
from unittest import mock

import pytest
from ucp_support import connected, event_loop_policy, fresh_ucp, mp  # noqa: F401

import ucp
from hawser import ucp as hawser_ucp
from hawser import ucxx


def test_one_module_by_two_names():
    assert ucp is hawser_ucp
    assert sys.modules["ucp.core"] is sys.modules["hawser.ucp.core"]
    import ucp._libs.ucx_api as api

    assert api is ucp.ucx_api
    from ucp._version import __version__
    from ucp.benchmarks.utils import run_cluster_server

    assert ucp.__version__ == __version__ and sys.modules[run_cluster_server.__module__] is ucp.benchmarks.utils


def test_nothing_is_opened_early():
    assert ucp.core._ctx is None
    assert len(ucp.get_ucx_version()) == 3
    assert ucp.get_config()["TLS"] == os.environ.get("UCX_TLS", "all")
    assert ucp.__ucx_version__ == "{}.{}.{}".format(*ucp.get_ucx_version())
    assert isinstance(ucp.__version__, str) and isinstance(ucp.__git_commit__, str)
    assert ucp.core._ctx is None


def test_options():
    options = {"SEG_SIZE": "3M"}
    ucp.init(options)
    assert ucp.get_config()["SEG_SIZE"] == "3M"
    with pytest.raises(RuntimeError, match="already"):
        ucp.init()
    ucp.reset()
    with mock.patch.dict(os.environ, {"UCX_SEG_SIZE": "4M"}):
        assert ucp.get_config()["SEG_SIZE"] == "4M"
        ucp.init(options)
        assert ucp.get_config()["SEG_SIZE"] == "3M"
        ucp.reset()
        ucp.init(options, env_takes_precedence=True)
        assert ucp.get_config()["SEG_SIZE"] == "4M"
        assert options == {"SEG_SIZE": "3M"}
        ucp.reset()
    with pytest.raises(ucp.exceptions.UCXConfigError, match="SEG_SIZE to invalid-size: Invalid parameter"):
        ucp.init({"SEG_SIZE": "invalid-size"})
    with mock.patch.dict(os.environ, {"UCX_SEG_SIZE": "invalid-size"}):
        with pytest.raises(ucp.exceptions.UCXConfigError, match="Invalid parameter"):
            ucp.init()


@pytest.mark.parametrize("key", ["NO_SUCH_OPTION", "SOCKADDR_TLS_PRIORITY"])
def test_a_refused_option_is_named(key):
    with pytest.raises(ucp.exceptions.UCXConfigError, match=f"{key}.* nonsense|{key}.*'nonsense'"):
        ucp.init({key: "nonsense"})


@pytest.mark.parametrize("seconds", ["nan", "five"])
def test_a_connect_timeout_that_is_none(seconds, monkeypatch):
    monkeypatch.setenv("UCXPY_CONNECT_TIMEOUT", seconds)
    with pytest.raises(ValueError, match=f"UCXPY_CONNECT_TIMEOUT.*{seconds}"):
        ucp.init()
    ucp.init(connect_timeout=5)


def test_logging():
    lines = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("ucx")
    logger.addHandler(handler)
    level = logger.level
    try:
        logger.setLevel(logging.INFO)
        ucp.init({"SEG_SIZE": "3M"})
        assert any("SEG_SIZE" in line for line in lines)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("module", [ucp, ucxx], ids=["ucp", "ucxx"])
async def test_debug_logging(module, caplog):
    """What becomes of connections is told at debug level, by the number that names the endpoint."""
    logger = logging.getLogger("ucx")
    logger.addHandler(caplog.handler)
    level = logger.level
    logger.setLevel(logging.DEBUG)
    try:
        met = asyncio.get_running_loop().create_future()
        listener = module.create_listener(met.set_result)
        client = await module.create_endpoint("127.0.0.1", listener.port)
        server = await met
        by_address = await module.create_endpoint_from_worker_address(module.get_worker_address())
        by_address.abort()
        uids = [hex(ep.uid) for ep in (client, server, by_address)]
        await client.close()
        ended = server.closed if module is ucp else lambda: server.closed
        while not ended():
            await asyncio.sleep(0.01)
        server.abort()
        listener.close()
    finally:
        logger.removeHandler(caplog.handler)
        logger.setLevel(level)
        module.reset()
    assert f"create_endpoint() client: {uids[0]}, error handling: True, msg-tag-send: 0x" in caplog.text
    assert f"_listener_handler() server: {uids[1]}, error handling: True, msg-tag-send: 0x" in caplog.text
    assert f"create_endpoint_from_worker_address() client: {uids[2]}, error handling: True" in caplog.text
    assert all(f"Endpoint.abort(): {uid}" in caplog.text for uid in uids)
    if module is ucp:
        assert f"[Send shutdown] ep: {uids[0]}" in caplog.text and f"[Recv shutdown] ep: {uids[1]}" in caplog.text
    else:
        assert f"Endpoint {uids[1]}: the connection ended: " in caplog.text


@pytest.mark.parametrize("transports", ["sysv", "posix", "tcp", "all"])
def test_information(transports):
    ucp.init({"TLS": transports})
    assert "transport" in ucp.get_ucp_context_info() or "resource" in ucp.get_ucp_context_info()
    assert isinstance(ucp.get_ucp_worker_info(), str)
    found = ucp.get_active_transports()
    assert any(name.startswith(transports) for name in found) or (transports == "all" and found)
    assert isinstance(ucp.get_ucp_worker(), int)


@pytest.mark.parametrize("module", [ucp, ucxx], ids=["ucp", "ucxx"])
@pytest.mark.parametrize("transports, tcp", [("posix", False), ("^tcp", False), ("all", True), ("sysv,tcp", True)])
def test_transports_that_are_left_out(module, transports, tcp):
    """Connections begin by TCP all the same, but no message goes that way."""
    module.reset()
    module.init({"TLS": transports})
    active = module.get_active_transports()
    assert {"sysv", "posix"} & active and ("tcp" in active) is tcp
    module.reset()


def test_get_address():
    assert ucp.get_address().count(".") == 3
    with pytest.raises(OSError):
        ucp.get_address("nonsense0")
    with mock.patch.dict(os.environ, {"UCXPY_IFNAME": "lo"}):
        assert ucp.get_address() == "127.0.0.1"


@pytest.mark.parametrize(("level", "said"), [("INFO", True), ("error", False)])
def test_log_level_of_the_environment(level, said):
    program = "import ucp; ucp.init({'SEG_SIZE': '3M'})"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "UCXPY_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert ("UCXPY  INFO   SEG_SIZE: 3M" in done.stderr) == said


def test_a_log_level_that_is_none():
    done = subprocess.run(
        [sys.executable, "-c", "import ucp"],
        env={**os.environ, "UCXPY_LOG_LEVEL": "loud"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ValueError: UCXPY_LOG_LEVEL is 'loud'")


def test_contexts_are_not_copied():
    context = ucp.ApplicationContext()
    with pytest.raises(TypeError, match="copied"):
        copy.copy(context)
