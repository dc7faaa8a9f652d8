#!/usr/bin/env python3
"""Half a round trip of a small message through Python, against raw UCX and asyncio streams.

    .venv/bin/python bench/python/pingpong.py --build build [--size 8] [--rounds 5] [--ucx wheel]

Every round runs each way once, in turns, both sides pinned to a core of their own; raw UCX is ucx_perftest of the same UCX
(by `hawser perf --compare`). What is printed is the median over the rounds: ns, ratio to raw, ns added to raw.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import subprocess
import time

import hawser
import hawser.sync
from hawser import ucp

mp = multiprocessing.get_context("spawn")


async def exchange(send, recv, count, first):
    """Seconds of half a round trip."""
    start = time.perf_counter()
    for _ in range(count):
        if first:
            await send()
            await recv()
        else:
            await recv()
            await send()
    return (time.perf_counter() - start) / count / 2


async def timed(send, recv, args, first):
    await exchange(send, recv, args.count // 10, first)
    return await exchange(send, recv, args.count, first)


async def await_server(args, tell):
    async with hawser.listen(host="127.0.0.1") as listener:
        tell(listener.port)
        async with await listener.accept() as ep:
            data = bytearray(args.size)
            await timed(lambda: ep.send(data), lambda: ep.recv(data), args, False)


async def await_client(args, port):
    async with hawser.connect("127.0.0.1", port) as ep:
        data = bytearray(args.size)
        count = args.count
        for _ in range(count // 10):
            await ep.send(data)
            await ep.recv(data)
        start = time.perf_counter()
        for _ in range(count):
            await ep.send(data)
            await ep.recv(data)
        return (time.perf_counter() - start) / count / 2


async def ucp_server(args, tell):
    done = asyncio.get_running_loop().create_future()

    async def serve(ep):
        data = bytearray(args.size)
        for _ in range(args.count + args.count // 10):
            await ep.recv(data)
            await ep.send(data)
        await ep.close()
        done.set_result(None)

    listener = ucp.create_listener(serve)
    tell(listener.port)
    await done
    listener.close()


async def ucp_client(args, port):
    ep = await ucp.create_endpoint("127.0.0.1", port)
    data = bytearray(args.size)
    for _ in range(args.count // 10):
        await ep.send(data)
        await ep.recv(data)
    start = time.perf_counter()
    for _ in range(args.count):
        await ep.send(data)
        await ep.recv(data)
    took = (time.perf_counter() - start) / args.count / 2
    await ep.close()
    return took


async def streams_server(args, tell):
    done = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        for _ in range(args.slow + args.slow // 10):
            writer.write(await reader.readexactly(args.size))
        await writer.drain()
        done.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    tell(server.sockets[0].getsockname()[1])
    await done
    server.close()


async def streams_client(args, port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = bytes(args.size)
    for _ in range(args.slow // 10):
        writer.write(data)
        await reader.readexactly(args.size)
    start = time.perf_counter()
    for _ in range(args.slow):
        writer.write(data)
        await reader.readexactly(args.size)
    return (time.perf_counter() - start) / args.slow / 2


async def sync_server(args, tell):
    with hawser.sync.listen(host="127.0.0.1") as listener:
        tell(listener.port)
        with listener.accept() as ep:
            data = bytearray(args.size)
            for _ in range(args.count + args.count // 10):
                ep.recv(data)
                ep.send(data)


async def sync_client(args, port):
    with hawser.sync.connect("127.0.0.1", port) as ep:
        data = bytearray(args.size)
        for _ in range(args.count // 10):
            ep.send(data)
            ep.recv(data)
        start = time.perf_counter()
        for _ in range(args.count):
            ep.send(data)
            ep.recv(data)
        return (time.perf_counter() - start) / args.count / 2


WAYS = {
    "await": (await_server, await_client),
    "sync": (sync_server, sync_client),
    "ucp": (ucp_server, ucp_client),
    "asyncio streams": (streams_server, streams_client),
}


def run_server(way, args, pipe):
    os.sched_setaffinity(0, [args.cpus[0]])
    asyncio.run(WAYS[way][0](args, pipe.send))


def run_client(way, args, pipe):
    os.sched_setaffinity(0, [args.cpus[1]])
    pipe.send(asyncio.run(WAYS[way][1](args, pipe.recv())))


def measure(way, args):
    server_pipe, server_end = mp.Pipe()
    client_pipe, client_end = mp.Pipe()
    server = mp.Process(target=run_server, args=(way, args, server_end))
    client = mp.Process(target=run_client, args=(way, args, client_end))
    server.start()
    client.start()
    client_pipe.send(server_pipe.recv())
    took = client_pipe.recv()
    client.join()
    server.join()
    return took


def raw(args):
    """Half a round trip of ucx_perftest, in seconds."""
    command = [os.path.join(args.build, "hawser"), "perf", "--json", "--compare", "1", "-t", "tag_lat", "-s", str(args.size)]
    command += ["-n", str(args.count)]
    done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return done["rounds"][0]["raw"]["overall_us"] * 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=50_000)
    parser.add_argument("--ucx", default="", help="system, wheel or a folder")
    args = parser.parse_args()
    args.slow = max(100, args.count // 50)
    cpus = sorted(os.sched_getaffinity(0))
    args.cpus = (cpus[1 % len(cpus)], cpus[0])
    os.environ["HAWSER_UCX"] = args.ucx or hawser.library()["ucx_path"]
    found = {"raw": []} | {way: [] for way in WAYS}
    for _ in range(args.rounds):
        found["raw"].append(raw(args))
        for way in WAYS:
            found[way].append(measure(way, args))
    base = statistics.median(found["raw"])
    for way, times in found.items():
        took = statistics.median(times)
        print(f"{way:16} {took * 1e9:9.0f} ns   {took / base:8.2f} x raw   {(took - base) * 1e9:+9.0f} ns", flush=True)
    result = {"case": "python_pingpong", "ucx": os.environ["HAWSER_UCX"], "size": args.size, "seconds": found}
    os.makedirs(os.path.join(args.build, "bench"), exist_ok=True)
    with open(os.path.join(args.build, "bench", "results.jsonl"), "a") as out:
        out.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
