"""psk-file: every comm needs the key, in a cluster and of whoever comes."""

import asyncio
import contextlib

import dask
import pytest
from dask_support import spawned
from distributed import Client, LocalCluster
from distributed.comm import connect, listen

from hawser.dask import _workers

SETTING = "distributed.comm.ucx.psk-file"
pytestmark = [pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def closed():
    yield
    _workers._close_all()


@pytest.fixture
def keys(tmp_path):
    """Files with two keys."""
    paths = tmp_path / "key", tmp_path / "other"
    for path, byte in zip(paths, b"ab", strict=True):
        path.write_bytes(bytes([byte]) * 32 + b"\n")
    return [str(path) for path in paths]


def serve(pipe, key):
    """Echoes over comms with a key, until the pipe says so."""

    async def echo(comm):
        with contextlib.suppress(OSError):
            while True:
                await comm.write(await comm.read())

    async def main():
        async with listen("ucx://127.0.0.1:0", echo) as listener:
            pipe.send(listener.contact_address)
            await asyncio.to_thread(pipe.recv)

    with dask.config.set({SETTING: key}):
        asyncio.run(main())


async def talk(address, key):
    with dask.config.set({SETTING: key}):
        try:
            comm = await connect(address, timeout=5)
            await comm.write("hello")
            answer = await comm.read()
            await comm.close()
            return answer
        finally:
            # The next one has another key.
            await asyncio.to_thread(_workers._close_all)


async def test_only_peers_with_the_key_are_let_in(keys):
    with spawned(serve, keys[0]) as (pipe, process):
        address = await asyncio.to_thread(pipe.recv)
        assert await talk(address, keys[0]) == "hello"
        for wrong in (keys[1], None):
            with pytest.raises(OSError):
                await talk(address, wrong)
        assert await talk(address, keys[0]) == "hello"
        pipe.send("enough")
        await asyncio.to_thread(process.join, 30)


def test_a_cluster_with_a_key(keys):
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with dask.config.set({SETTING: keys[0]}), LocalCluster(protocol="ucx", **options) as c, Client(c) as client:
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        with spawned(knock, c.scheduler_address, keys[1]) as (pipe, process):
            assert pipe.recv() == "refused"
        with spawned(knock, c.scheduler_address, keys[0]) as (pipe, process):
            assert pipe.recv() == "let in"


def knock(pipe, address, key):
    async def main():
        comm = await connect(address, timeout=5)
        comm.abort()

    with dask.config.set({SETTING: key}):
        try:
            asyncio.run(main())
            pipe.send("let in")
        except OSError:
            pipe.send("refused")
