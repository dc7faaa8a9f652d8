"""A GPU for each test, in one kind of loop."""

import asyncio

import pytest
from gpu_support import use


@pytest.fixture(autouse=True)
def gpu():
    use()


@pytest.fixture
def event_loop_policy():
    return asyncio.DefaultEventLoopPolicy()
