"""Dask's workers over ucx://: where they are reached, and how fast they go."""

import asyncio
import time

import pytest
from dask_support import has_ipv6
from distributed import Client, Nanny, Scheduler, Worker

from hawser.dask import _workers

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("forked")]


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


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Worker, "[::1]"), (Nanny, "[::1]"), (Worker, "only6.example")],  # a nanny's process does not know the name
)
async def test_a_worker_without_a_host_has_an_ipv6_address_if_the_scheduler_has(kind, name, monkeypatch):
    """As over tcp: a network may have no other addresses."""
    if not has_ipv6():
        pytest.skip("IPv6 needs UCX 1.14 and an IPv6 address on this machine")
    loop = asyncio.get_running_loop()
    resolve = loop.getaddrinfo
    monkeypatch.setattr(
        loop, "getaddrinfo", lambda host, *args, **kwargs: resolve("::1" if host == name else host, *args, **kwargs)
    )
    async with scheduler(host="[::1]") as s, kind(s.address.replace("[::1]", name), nthreads=1):
        assert [address.rpartition(":")[0] for address in s.workers] == ["ucx://[::1]"]
        async with Client(s.address, asynchronous=True) as client:
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
