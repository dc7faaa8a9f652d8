"""Comms of Dask over each kind of transport."""

import asyncio

import dask
import pytest

from hawser.dask import _workers

TRANSPORTS = {"unset": None, "tcp": "tcp,self", "shm": "sysv,tcp,self"}


@pytest.fixture
def event_loop_policy():
    return asyncio.DefaultEventLoopPolicy()


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
