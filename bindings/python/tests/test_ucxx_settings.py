"""UCXX programs: names, options, ways to make progress, what is told of UCX. TIMEOUT: 240"""

import asyncio
import copy
import logging
from types import SimpleNamespace

import pytest
from ucp_support import event_loop_policy, fresh_ucxx, mp  # noqa: F401
from ucxx_support import connected, pair

from hawser import ucxx
from hawser.ucxx._lib_async.utils_test import captured_logger, compute_timeouts, wait_listener_client_handlers


async def test_no_copies():
    listener, _kept, client = await pair()
    for thing in (listener, client):
        with pytest.raises(TypeError, match=r"copied|pickle"):
            copy.copy(thing)
    listener.close()
    await client.close()


def test_versions_and_names():
    assert ucxx.__version__.startswith("0.52") and ucxx.core._ctx is None
    assert ucxx.__ucx_version__ == ".".join(map(str, ucxx.get_ucx_version()))
    assert ucxx.exceptions.UCXCanceled is ucxx.exceptions.UCXCanceledError
    assert issubclass(ucxx.exceptions.UCXMsgTruncated, ucxx.exceptions.UCXError)
    assert ucxx.UCXError is ucxx.exceptions.UCXError and ucxx.ucx_api is ucxx.libucxx
    assert ucxx.ApplicationContext is ucxx.core.ApplicationContext and ucxx.logger.name == "ucx"
    assert ucxx.get_address("lo") == "127.0.0.1"
    with pytest.raises(OSError):
        ucxx.get_address("no-such-interface")


def test_options(monkeypatch):
    monkeypatch.delenv("UCX_TLS", raising=False)
    assert ucxx.get_config()["TLS"] == "all"
    monkeypatch.setenv("UCX_SEG_SIZE", "2M")
    assert ucxx.get_config()["SEG_SIZE"] == "2M"
    options = {"SEG_SIZE": "3M"}
    ucxx.init(options)
    assert ucxx.get_config()["SEG_SIZE"] == "3M"
    with pytest.raises(RuntimeError):
        ucxx.init()
    ucxx.reset()
    ucxx.init(options, env_takes_precedence=True)
    assert ucxx.get_config()["SEG_SIZE"] == "2M" and options == {"SEG_SIZE": "3M"}
    ucxx.reset()
    with pytest.raises(ucxx.exceptions.UCXInvalidParamError):
        ucxx.init({"SEG_SIZE": "invalid-size"})


def test_logging():
    for level, silent in ((logging.INFO, False), (logging.ERROR, True)):
        with captured_logger("ucx", level) as log:
            ucxx.reset()
            ucxx.init({"SEG_SIZE": "3M"})
        assert (log.getvalue() == "") is silent


@pytest.mark.parametrize("mode", ["blocking", "polling", "thread", "thread-polling"])
@pytest.mark.parametrize("by", ["arguments", "environment"])
async def test_progress_modes(mode, by, monkeypatch):
    threaded = mode.startswith("thread")
    if by == "arguments":
        arguments = {"progress_mode": mode, "enable_delayed_submission": threaded, "enable_python_future": True}
    else:
        arguments = {}
        monkeypatch.setenv("UCXPY_PROGRESS_MODE", mode)
        monkeypatch.setenv("UCXPY_ENABLE_DELAYED_SUBMISSION", "1" if threaded else "0")
        monkeypatch.setenv("UCXPY_ENABLE_PYTHON_FUTURE", "1")
    ucxx.init(**arguments)
    context = ucxx.core._get_ctx()
    assert context.progress_mode == mode
    assert context.worker.enable_delayed_submission is threaded and context.worker.enable_python_future is threaded

    async def echo(ep):
        message = bytearray(5)
        await ep.recv(message)
        await ep.send(message)

    listener, client = await connected(echo)
    message = bytearray(5)
    await asyncio.gather(client.send(b"hello"), client.recv(message))
    assert message == b"hello"
    await client.close()
    await wait_listener_client_handlers(listener)
    listener.close()


def test_refused_modes():
    with pytest.raises(ValueError, match="Unknown progress mode"):
        ucxx.init(progress_mode="none")
    with pytest.raises(ValueError, match="Delayed submission requested, but"):
        ucxx.init(progress_mode="blocking", enable_delayed_submission=True)


@pytest.mark.parametrize("transports", ["sysv", "tcp", "posix,tcp"])
def test_information(transports):
    ucxx.init({"TLS": transports, "NET_DEVICES": "all"})
    active = ucxx.get_active_transports()
    assert all(any(a.startswith(t) for a in active) for t in transports.split(","))
    assert ucxx.get_ucp_context_info() and ucxx.get_ucp_worker_info()


async def test_handles():
    async def serve(ep):
        assert ep.ucp_worker == ucxx.get_ucp_worker() and ep.ucxx_worker == ucxx.get_ucxx_worker()
        await ep.close()

    listener, client = await connected(serve)
    assert client.ucp_endpoint == client.uid > 0 and client.ucxx_endpoint > 0
    assert client.ucp_worker == ucxx.get_ucp_worker() and client.ucxx_worker == ucxx.get_ucxx_worker()
    assert isinstance(listener.ip, str) and 0 < listener.port < 65536
    await client.close()
    await wait_listener_client_handlers(listener)
    assert listener.active_clients == 0


def test_interface_names():
    assert all(hasattr(ucxx, name) for name in ucxx.__all__) and len(ucxx.__all__) > 20


@pytest.mark.parametrize("kept, wanted", [("stash", (590.0, 595.0)), ("cache", (90.0, 95.0)), (None, (50.0, 55.0))])
def test_timeouts_below_those_of_a_test(kept, wanted):
    """As UCXX's own conftest keeps them, of this version and of older ones."""
    from hawser.ucxx._lib_async.pytest_stash_keys import ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY

    config = SimpleNamespace(stash=pytest.Stash(), cache={})
    if kept == "stash":
        config.stash[ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY] = 600.0
    elif kept == "cache":
        config.cache["asyncio_timeout"] = {"timeout": 100.0}
    assert compute_timeouts(config) == wanted
