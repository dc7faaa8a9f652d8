"""Dask's workers over ucx://: where they are reached, and how fast they go."""

import time

import pytest
from distributed import Client, Nanny, Scheduler, Worker

from hawser.dask import _workers

pytestmark = [pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def closed():
    yield
    _workers._close_all()


def scheduler(protocol="ucx", host="127.0.0.1"):
    return Scheduler(protocol=protocol, host=host, port=0, dashboard_address=":0")


@pytest.mark.parametrize("host", [None, "0.0.0.0"])
@pytest.mark.parametrize("kind", [Worker, Nanny])
async def test_a_worker_without_a_host_is_reached_where_the_scheduler_is(kind, host):
    """As over tcp: through the interface that leads to the scheduler, which need not be that of the default route."""
    async with scheduler() as s, kind(s.address, nthreads=1, host=host), Client(s.address, asynchronous=True) as client:
        assert [address.rpartition(":")[0] for address in s.workers] == ["ucx://127.0.0.1"]
        assert await client.submit(sum, [1, 2]) == 3


async def closing(protocol):
    """Seconds that a worker takes to close, at best: it has a connection and nothing to do."""
    times = []
    async with scheduler(protocol) as s:
        for _ in range(5):
            worker = await Worker(s.address, nthreads=1, host="127.0.0.1")
            started = time.monotonic()
            await worker.close()
            times.append(time.monotonic() - started)
    return min(times)


@pytest.mark.parametrize("protocol", ["ucx", "hawser"])
async def test_a_worker_closes_at_once(protocol):
    """Nothing that was sent is lost without a pause before the goodbye, so there is none (it would take 0.2 s)."""
    assert await closing(protocol) < 0.1 + await closing("tcp")
