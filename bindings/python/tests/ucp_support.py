"""What the tests of hawser.ucp and hawser.ucxx share; the first speak to it by its name, as UCX-Py's programs do."""

import asyncio
import gc
import multiprocessing

import pytest

import ucp
from hawser import ucxx

mp = multiprocessing.get_context("spawn")


def _fresh(api):
    @pytest.fixture(autouse=True)
    def fresh():
        api.reset()
        yield
        gc.collect()
        api.reset()

    return fresh


fresh_ucp, fresh_ucxx = _fresh(ucp), _fresh(ucxx)


@pytest.fixture
def event_loop_policy():
    return asyncio.DefaultEventLoopPolicy()


async def connected(serve, **options):
    """A listener that runs `serve(endpoint)`, and an endpoint connected to it."""
    listener = ucp.create_listener(serve, **options)
    return listener, await ucp.create_endpoint(ucp.get_address(), listener.port, **options)
