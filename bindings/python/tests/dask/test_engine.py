# TIMEOUT: 300
"""What Dask's scheduler, workers and nannies do with their connections, over ucx://: calls of a pool of connections,
workers that fail, stealing, nannies, shuffles from worker to worker."""

import asyncio
import contextlib
import os
import signal

import dask
import dask.array as da
import numpy as np
import pytest
from dask_support import until
from distributed import Client, Nanny, Scheduler, Worker, wait
from distributed.batched import BatchedSend
from distributed.comm import CommClosedError, connect, listen
from distributed.core import ConnectionPool, Server, rpc

from hawser.dask import _workers

PATIENCE = 60.0

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.usefixtures("forked")]


@pytest.fixture(autouse=True)
def closed():
    yield
    _workers._close_all()


@contextlib.asynccontextmanager
async def started(n=2, kind=Worker, nthreads=1, host="127.0.0.1", **options):
    """A scheduler, n workers or nannies, and a client, on this loop."""
    async with contextlib.AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(
            Scheduler(protocol="ucx", port=0, dashboard=False, host="127.0.0.1")
        )
        workers = [
            await stack.enter_async_context(
                kind(scheduler.address, host=host, nthreads=nthreads, dashboard=False, name=i, **options)
            )
            for i in range(n)
        ]
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        yield scheduler, workers, client


# ---- Calls ----


@contextlib.asynccontextmanager
async def server(handlers):
    s = Server(handlers)
    await s.listen("ucx://127.0.0.1:0")
    try:
        yield s
    finally:
        await s.close()


async def test_calls_and_their_errors(transport):
    async def echo(data):
        return data

    def fail():
        raise ValueError("no")

    async with server({"echo": echo, "fail": fail}) as s:
        async with rpc(s.address) as peer:
            data = np.random.default_rng(0).bytes(3_000_000)
            assert await peer.echo(data=data) == data
            with pytest.raises(ValueError, match="no"):
                await peer.fail()
            got = await asyncio.gather(*(peer.echo(data=i) for i in range(50)))
            assert got == list(range(50))
    with dask.config.set({"distributed.comm.timeouts.connect": "500ms"}):
        async with rpc(s.address) as peer:
            with pytest.raises(OSError):
                await peer.echo(data=1)


async def test_a_pool_keeps_its_limit_and_uses_connections_again(transport):
    async with contextlib.AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(server({"ping": lambda: "pong"})) for _ in range(8)]
        pool = await ConnectionPool(limit=3)
        try:
            for _ in range(3):
                assert await asyncio.gather(*(pool(s.address).ping() for s in servers)) == ["pong"] * 8
                assert pool.open <= 3
            one = pool(servers[0].address)
            await one.ping()
            comm = next(iter(pool.available[servers[0].address]))
            await one.ping()
            assert next(iter(pool.available[servers[0].address])) is comm
        finally:
            await pool.close()
        assert pool.open == 0


async def test_a_pool_sees_that_a_server_is_gone(transport):
    pool = await ConnectionPool(limit=10)
    try:
        async with server({"ping": lambda: "pong"}) as s:
            await pool(s.address).ping()
            comm = next(iter(pool.available[s.address]))
        await until(comm.closed, PATIENCE)
        with dask.config.set({"distributed.comm.timeouts.connect": "500ms"}):
            with pytest.raises(OSError):
                await asyncio.wait_for(pool(s.address).ping(), PATIENCE)
        assert pool.open == 0
    finally:
        await pool.close()


async def test_a_cancelled_call_does_not_spoil_the_next(transport):
    async def slow(seconds):
        await asyncio.sleep(seconds)
        return seconds

    async with server({"slow": slow}) as s:
        pool = await ConnectionPool(limit=2)
        try:
            for _ in range(10):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(pool(s.address).slow(seconds=30), 0.02)
            assert await pool(s.address).slow(seconds=0.01) == 0.01
            assert pool.open <= 2
        finally:
            await pool.close()


async def test_batches_keep_the_order_and_end_with_the_peer(transport):
    got = []

    async def collect(comm):
        with contextlib.suppress(CommClosedError):
            while True:
                got.extend(await comm.read())

    async with listen("ucx://127.0.0.1:0", collect) as listener:
        comm = await connect(listener.contact_address)
        batch = BatchedSend(interval=1)
        batch.start(comm)
        for i in range(2000):
            batch.send(i)
            if i % 100 == 0:
                await asyncio.sleep(0.001)
        await until(lambda: len(got) == 2000, PATIENCE)
        assert got == list(range(2000))
        comm.abort()
        with pytest.raises(CommClosedError):
            for i in range(1000):
                batch.send(i)
                await asyncio.sleep(0.01)
        await batch.close()


# ---- Workers that fail ----


def add(x, y):
    return x + y


async def test_a_closed_worker_s_results_are_computed_again():
    async with started(3) as (scheduler, workers, client):
        futures = client.map(add, range(30), range(30), pure=False)
        await wait(futures, timeout=PATIENCE)
        await workers[0].close()
        total = client.submit(sum, futures, pure=False)
        assert await asyncio.wait_for(total.result(), PATIENCE) == 2 * sum(range(30))
        assert workers[0].address not in scheduler.workers


async def test_scattered_data_is_lost_with_its_worker():
    async with started(2) as (scheduler, (a, b), client):
        x = await client.scatter(1, workers=[a.address])
        await a.close()
        await until(lambda: x.status in ("cancelled", "lost"), PATIENCE)
        assert await asyncio.wait_for(client.submit(add, 1, 2, workers=[b.address]).result(), PATIENCE) == 3


async def test_a_fetch_goes_on_when_its_connection_breaks(transport):
    """Every connection between the workers is cut; data is asked for again."""
    async with started(2) as (scheduler, (a, b), client):
        x = client.submit(np.arange, 100_000, workers=[a.address], key="x")
        assert await asyncio.wait_for(client.submit(np.sum, x, workers=[b.address]).result(), PATIENCE) == 4999950000
        for comm in list(b.rpc.available[a.address]):
            comm.abort()
        y = client.submit(np.ones, 100_000, workers=[a.address], key="y")
        assert await asyncio.wait_for(client.submit(np.sum, y, workers=[b.address]).result(), PATIENCE) == 100_000


async def test_a_worker_whose_stream_breaks_is_removed(transport):
    async with started(2) as (scheduler, (a, b), client):
        scheduler.stream_comms[a.address].comm.abort()
        await until(lambda: a.address not in scheduler.workers, PATIENCE)
        assert await asyncio.wait_for(client.submit(add, 1, 2, pure=False).result(), PATIENCE) == 3


async def test_restart_forgets_everything_and_goes_on():
    async with started(2, Nanny) as (scheduler, nannies, client):
        pids = {nanny.pid for nanny in nannies}
        future = client.submit(add, 1, 2)
        await wait(future, timeout=PATIENCE)
        await client.restart(timeout=PATIENCE)
        assert future.status == "cancelled"
        assert pids.isdisjoint({nanny.pid for nanny in nannies}) and len(scheduler.workers) == 2
        assert await asyncio.wait_for(client.submit(add, 1, 2).result(), PATIENCE) == 3


# ---- Nannies ----


async def test_a_nanny_replaces_a_killed_worker():
    async with started(1, Nanny) as (scheduler, (nanny,), client):
        pid, address = nanny.pid, nanny.worker_address
        assert address.startswith("ucx://") and nanny.address.startswith("ucx://")
        os.kill(pid, signal.SIGKILL)
        await until(lambda: nanny.pid not in (None, pid) and nanny.worker_address in scheduler.workers, PATIENCE)
        assert await asyncio.wait_for(client.submit(os.getpid, pure=False).result(), PATIENCE) == nanny.pid


async def test_a_task_that_kills_its_workers_fails_alone():
    with dask.config.set({"distributed.scheduler.allowed-failures": 1}):
        async with started(2, Nanny) as (scheduler, nannies, client):
            bad = client.submit(os._exit, 1, pure=False)
            with pytest.raises(Exception, match="died"):
                await asyncio.wait_for(bad.result(), PATIENCE)
            await until(lambda: len(scheduler.workers) == 2, PATIENCE)
            assert await asyncio.wait_for(client.submit(add, 1, 2, pure=False).result(), PATIENCE) == 3


@pytest.mark.parametrize("host", ["127.0.0.2", "ucx://127.0.0.3", "ucx://0.0.0.0"])
async def test_a_nanny_s_host_is_its_worker_s(host):
    async with started(1, Nanny, host=host) as (scheduler, (nanny,), client):
        listens = await client.run(lambda dask_worker: dask_worker.listener.listen_address)
        assert [address.rpartition(":")[0] for address in listens.values()] == ["ucx://" + host.rpartition("/")[2]]
        assert await asyncio.wait_for(client.submit(add, 1, 2, pure=False).result(), PATIENCE) == 3


async def test_the_protocol_comes_from_the_scheduler_s_address():
    for kind in (Worker, Nanny):
        async with started(1, kind) as (scheduler, (worker,), client):
            assert worker.address.startswith("ucx://")
            assert all(address.startswith("ucx://") for address in scheduler.workers)


# ---- Stealing ----


async def slow_inc(x):
    await asyncio.sleep(0.05)
    return x + 1


async def test_an_idle_worker_steals():
    async with started(2) as (scheduler, (a, b), client):
        x = await client.scatter(1, workers=[a.address])
        futures = [client.submit(slow_inc, x, pure=False) for _ in range(100)]
        await wait(futures, timeout=PATIENCE)
        assert len(b.data) > 10 and len(a.data) > 10
        assert await client.gather(futures) == [2] * 100


# ---- Shuffles from worker to worker ----


@pytest.mark.parametrize("method", ["p2p", "tasks"])
async def test_rechunk(method, transport):
    async with started(3) as (scheduler, workers, client):
        x = np.random.default_rng(3).random((300, 200))
        y = da.from_array(x, chunks=(20, 200)).rechunk((300, 10), method=method)
        got = await asyncio.wait_for(client.compute(y), PATIENCE)
        np.testing.assert_array_equal(got, x)


async def test_several_shuffles_at_once():
    async with started(3) as (scheduler, workers, client):
        xs = [np.random.default_rng(i).random((120, 120)) for i in range(4)]
        ys = [da.from_array(x, chunks=(10, 120)).rechunk((120, 10), method="p2p") for x in xs]
        for x, y in zip(xs, await asyncio.wait_for(client.gather(client.compute(ys)), PATIENCE), strict=True):
            np.testing.assert_array_equal(y, x)


async def test_a_worker_that_closes_during_a_shuffle():

    def slow(block):
        import time

        time.sleep(0.02)
        return block

    async with started(3) as (scheduler, workers, client):
        x = np.random.default_rng(5).random((300, 300))
        y = da.from_array(x, chunks=(10, 300)).map_blocks(slow, dtype=x.dtype).rechunk((300, 10), method="p2p")
        future = client.compute(y)
        await until(lambda: any(w.state.tasks for w in workers), PATIENCE)
        await asyncio.sleep(0.2)
        await workers[0].close()
        np.testing.assert_array_equal(await asyncio.wait_for(future.result(), PATIENCE), x)


@pytest.mark.parametrize("method", ["p2p", "tasks"])
async def test_shuffle_of_a_table(method):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    dd = pytest.importorskip("dask.dataframe")
    async with started(2) as (scheduler, workers, client):
        rng = np.random.default_rng(7)
        table = pd.DataFrame({"key": rng.integers(0, 50, 20_000), "value": rng.random(20_000)})
        with dask.config.set({"dataframe.shuffle.method": method}):
            shuffled = dd.from_pandas(table, npartitions=8).shuffle("key")
        got = await asyncio.wait_for(client.compute(shuffled), PATIENCE)
        order = ["key", "value"]
        pd.testing.assert_frame_equal(
            got.sort_values(order, ignore_index=True), table.sort_values(order, ignore_index=True)
        )
