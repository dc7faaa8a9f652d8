"""What the tests of hawser.ucp share: they speak to it by its top-level name, as UCX-Py's programs do."""

import asyncio
import gc
import multiprocessing

import pytest

import ucp

mp = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def fresh_ucp():
    ucp.reset()
    yield
    gc.collect()
    ucp.reset()


@pytest.fixture
def event_loop_policy():
    return asyncio.DefaultEventLoopPolicy()


async def connected(serve, **options):
    """A listener that runs `serve(endpoint)`, and an endpoint connected to it."""
    listener = ucp.create_listener(serve, **options)
    return listener, await ucp.create_endpoint(ucp.get_address(), listener.port, **options)
