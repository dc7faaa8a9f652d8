"""What is measured. Each case gives a function of a client that runs one round and gives its seconds.

`arrays` is the module that arrays are of, numpy or cupy, `tables` that of tables, pandas or cudf."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, wait

Round = Callable[[], float]


# ---- What is computed with ----


def missing(arrays: str, tables: str | None) -> str | None:
    """Why a case cannot run with these, or None."""
    needed = [arrays, *({"pandas": ["pandas", "pyarrow"], "cudf": ["cudf", "dask_cudf"]}[tables] if tables else [])]
    if absent := [name for name in needed if importlib.util.find_spec(name) is None]:
        return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed"
    if arrays == "cupy":
        try:
            importlib.import_module(arrays).ones(1)
        except Exception as e:
            return f"cupy has no GPU: {e}"
    return None


def _ones(size: int, arrays: str, dtype: str = "f8") -> Any:
    return importlib.import_module(arrays).ones(size, dtype)


def _random(arrays: str, seed: int | None = None) -> Any:
    return da.random.default_rng(importlib.import_module(arrays).random.default_rng(seed))


# ---- Between two workers ----


async def _fetch(key: str, owner: str, dask_worker: Any) -> float:
    from distributed.worker import get_data_from_worker

    start = time.perf_counter()
    response = await get_data_from_worker(dask_worker.rpc, [key], owner, who=dask_worker.address)
    seconds = time.perf_counter() - start
    assert response["status"] == "OK" and response["data"][key].nbytes > 0
    return seconds


async def _rpc(peer: str, calls: int, dask_worker: Any) -> float:
    payload = b"x" * 1000
    start = time.perf_counter()
    for _ in range(calls):
        await dask_worker.rpc(peer).echo(data=payload)
    return (time.perf_counter() - start) / calls


async def _send_recv(peer: str, size: int, calls: int, arrays: str, dask_worker: Any) -> float:
    """Half a round trip of an array over a connection of its own."""
    from distributed.comm import connect
    from distributed.protocol import to_serialize

    data = to_serialize(_ones(size, arrays, "u1"))
    comm = await connect(peer)
    try:
        start = time.perf_counter()
        for _ in range(calls):
            await comm.write(data)
            assert (await comm.read()).nbytes == size
        return (time.perf_counter() - start) / calls / 2
    finally:
        await comm.close()


async def _serve(dask_worker: Any) -> str:
    """An echo of calls, and a listener that echoes what it gets."""
    from distributed.comm import CommClosedError, listen
    from distributed.protocol import to_serialize

    dask_worker.handlers["echo"] = lambda data: data

    async def echo(comm: Any) -> None:
        try:
            while True:
                await comm.write(to_serialize(await comm.read()))
        except CommClosedError:
            pass

    if not hasattr(dask_worker, "bench_listener"):
        scheme = dask_worker.address.split("://")[0]
        dask_worker.bench_listener = await listen(f"{scheme}://127.0.0.1:0", echo)
    return str(dask_worker.bench_listener.contact_address)


def _two(client: Client) -> tuple[str, str]:
    a, b = list(client.scheduler_info()["workers"])[:2]
    return a, b


def fetch(client: Client, size: int, arrays: str) -> Round:
    a, b = _two(client)
    x = client.submit(_ones, size // 8, arrays, workers=[a], pure=False)
    with client.as_current():
        wait(x)
    return lambda x=x: client.run(_fetch, x.key, a, workers=[b])[b]


def rpc(client: Client, calls: int = 100) -> Round:
    a, b = _two(client)
    client.run(_serve)
    return lambda: client.run(_rpc, a, calls, workers=[b])[b]


def send_recv(client: Client, size: int, arrays: str) -> Round:
    a, b = _two(client)
    address = client.run(_serve, workers=[a])[a]
    calls = max(3, min(100, (64 << 20) // size))
    return lambda: client.run(_send_recv, address, size, calls, arrays, workers=[b])[b]


# ---- Of the whole cluster ----


def _timed(client: Client, work: Callable[[], Any]) -> Round:
    def one() -> float:
        with client.as_current():
            graph = work()
            start = time.perf_counter()
            client.compute(graph, sync=True)
            return time.perf_counter() - start

    return one


def _persisted(client: Client, make: Callable[[], Any]) -> Any:
    with client.as_current():
        data = make().persist()
        wait(data)
    return data


def transpose(client: Client, n: int, arrays: str) -> Round:
    chunk = min(n, max(500, n // 8))

    def one() -> float:
        # New each time: what was fetched stays with who fetched it.
        x = _persisted(client, lambda: _random(arrays).random((n, n), chunks=chunk))
        return _timed(client, lambda: (x + x.T).sum())()

    return one


def svd(client: Client, n: int, arrays: str) -> Round:
    x = _persisted(client, lambda: _random(arrays, 2).random((n * 10, n // 10), chunks=(n, n // 10)))

    def work() -> Any:
        return da.linalg.svd(x)[1]

    return _timed(client, work)


def rechunk(client: Client, n: int, method: str, arrays: str) -> Round:
    x = _persisted(client, lambda: _random(arrays, 3).random((n, n), chunks=(max(1, n // 16), n)))
    return _timed(client, lambda: x.rechunk((n, max(1, n // 16)), method=method).sum())


def _table(rows: int, seed: int, tables: str, parts: int = 16) -> Any:
    import dask.dataframe as dd

    frame = importlib.import_module(tables).DataFrame

    def part(i: int) -> Any:
        rng = np.random.default_rng([seed, i])
        return frame({"key": rng.permutation(rows)[: rows // parts], "value": rng.random(rows // parts)})

    meta = frame({"key": np.zeros(0, "i8"), "value": np.zeros(0)})
    return dd.from_map(part, range(parts), meta=meta)


def shuffle(client: Client, rows: int, method: str, tables: str) -> Round:
    table = _persisted(client, lambda: _table(rows, 4, tables))

    def work() -> Any:
        with dask.config.set({"dataframe.shuffle.method": method}):
            return table.shuffle("key").map_partitions(len).sum().optimize()

    return _timed(client, work)


def merge(client: Client, rows: int, tables: str) -> Round:
    left, right = (_persisted(client, lambda seed=seed: _table(rows, seed, tables)) for seed in (5, 6))

    def work() -> Any:
        with dask.config.set({"dataframe.shuffle.method": "p2p"}):
            return left.merge(right, on="key", how="inner").map_partitions(len).sum().optimize()

    return _timed(client, work)
