"""Comms of Dask over each kind of transport."""

import asyncio

import dask
import distributed.utils
import pytest
from dask_support import fork_server

from hawser.dask import _workers

TRANSPORTS = {"unset": None, "tcp": "tcp,self", "shm": "sysv,tcp,self"}


@pytest.fixture
def event_loop_policy():
    return asyncio.DefaultEventLoopPolicy()


@pytest.fixture
def forked(monkeypatch):
    """Nannies fork their workers off a server, which is many times faster than spawning them, as is Dask's default."""
    # Dask would have the server import all that it can use.
    monkeypatch.setattr(distributed.utils, "_forkserver_preload_set", True, raising=False)
    fork_server()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    tls = TRANSPORTS[request.param]
    with dask.config.set({"distributed.comm.ucx.environment": {"tls": tls} if tls else {}}):
        yield request.param
        _workers._close_all()


@pytest.fixture
def comms(transport):
    yield
    _workers._close_all()
