"""Dask over ucx:// (Hawser) against tcp://, in one run: run.py [CASE...]

Cases: fetch (one worker fetches an array of another), rpc (a 1 kB round trip between workers), transpose
((x + x.T).sum()). Each protocol has a cluster of two workers of one thread; rounds alternate between them. One line of
JSON for each case and protocol: the median of the rounds and its ratio to tcp, above 1 where it is faster.
"""

import argparse
import json
import statistics
import time

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster, wait

PROTOCOLS = ["tcp", "ucx"]


async def _fetch(key, owner, rounds, dask_worker):
    from distributed.worker import get_data_from_worker

    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        response = await get_data_from_worker(dask_worker.rpc, [key], owner, who=dask_worker.address)
        seconds.append(time.perf_counter() - start)
        assert response["status"] == "OK" and response["data"][key].nbytes > 0
        del response
    return seconds


async def _rpc(peer, rounds, dask_worker):
    payload = b"x" * 1000
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(100):
            await dask_worker.rpc(peer).echo(data=payload)
        seconds.append((time.perf_counter() - start) / 100)
    return seconds


def _serve_echo(dask_worker):
    dask_worker.handlers["echo"] = lambda data: data


def fetch(clients, size, rounds):
    keys = {}
    for protocol, client in clients.items():
        a, b = client.scheduler_info()["workers"]
        x = client.submit(np.ones, size // 8, workers=[a])
        with client.as_current():
            wait(x)
        keys[protocol] = (x, a, b)

    def one(protocol, n=1):
        x, a, b = keys[protocol]
        return clients[protocol].run(_fetch, x.key, a, n, workers=[b])[b]

    return alternate(one, rounds)


def rpc(clients, rounds):
    for client in clients.values():
        client.run(_serve_echo)

    def one(protocol):
        a, b = clients[protocol].scheduler_info()["workers"]
        return clients[protocol].run(_rpc, a, 1, workers=[b])[b]

    return alternate(one, rounds)


def transpose(clients, n, rounds):
    arrays = {}
    for protocol, client in clients.items():
        with client.as_current():
            arrays[protocol] = da.random.default_rng(1).random((n, n), chunks=(2000, 2000)).persist()
            wait(arrays[protocol])

    def one(protocol):
        client, x = clients[protocol], arrays[protocol]
        y = (x + x.T).sum()
        start = time.perf_counter()
        client.compute(y).result()
        return [time.perf_counter() - start]

    return alternate(one, rounds)


def alternate(one, rounds):
    seconds = {protocol: [] for protocol in PROTOCOLS}
    for protocol in PROTOCOLS:
        one(protocol)
    for _ in range(rounds):
        for protocol in PROTOCOLS:
            seconds[protocol] += one(protocol)
    return seconds


def report(case, seconds, size=None):
    medians = {protocol: statistics.median(s) for protocol, s in seconds.items()}
    for protocol, s in seconds.items():
        line = {"bench": "dask", "case": case, "protocol": protocol, "rounds": len(s)}
        line |= {"seconds": round(medians[protocol], 7), "min": round(min(s), 7), "max": round(max(s), 7)}
        if size is not None:
            line["GB_s"] = round(size / medians[protocol] / 1e9, 3)
        line["ratio_to_tcp"] = round(medians["tcp"] / medians[protocol], 2)
        print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="fetch, rpc, transpose; all if none is named")
    parser.add_argument("--sizes", type=int, nargs="*", default=[8, 128, 1024], metavar="MIB")
    parser.add_argument("--sides", type=int, nargs="*", default=[8000, 16000], metavar="N")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    cases = args.cases or ["fetch", "rpc", "transpose"]
    clusters, clients = [], {}
    # Nothing is spilled or paused: the transport is measured.
    memory = {f"distributed.worker.memory.{key}": False for key in ("target", "spill", "pause", "terminate")}
    with dask.config.set(memory):
        try:
            for protocol in PROTOCOLS:
                clusters.append(
                    LocalCluster(n_workers=2, threads_per_worker=1, protocol=protocol, dashboard_address=None)
                )
                clients[protocol] = Client(clusters[-1], set_as_default=False)
            if "rpc" in cases:
                report("rpc 1 kB", rpc(clients, args.rounds))
            if "fetch" in cases:
                for mib in args.sizes:
                    report(f"fetch {mib} MiB", fetch(clients, mib << 20, args.rounds), mib << 20)
            if "transpose" in cases:
                for n in args.sides:
                    report(f"transpose sum {n}", transpose(clients, n, args.rounds))
        finally:
            for client in clients.values():
                client.close()
            for cluster in clusters:
                cluster.close()


if __name__ == "__main__":
    main()
