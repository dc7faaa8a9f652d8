#!/usr/bin/env python3
"""Messages a second with many awaits in flight at once, against asyncio streams.

    .venv/bin/python bench/python/flight.py [--flight 1000] [--size 8] [--rounds 5]

So many tasks on each side; a task of one side and one of the other throw a message to and fro. Hawser's share an
endpoint and have a tag each. A stream lets one task at a time wait, so each pair has a connection of its own there.
Prints JSON: messages a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
from collections.abc import Callable
from typing import Any

import peers
from peers import clock


def allow_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def await_server(args: Any, tell: Callable[[int], None]) -> None:
    import hawser

    async with hawser.listen(host="127.0.0.1") as listener:
        tell(listener.port)
        async with await listener.accept() as ep:

            async def one(tag: int) -> None:
                data = bytearray(args.size)
                for _ in range(args.each):
                    await ep.recv(data, tag)
                    await ep.send(data, tag)

            await asyncio.gather(*(one(tag) for tag in range(args.flight)))


async def await_client(args: Any, port: int) -> float:
    import hawser

    async with hawser.connect("127.0.0.1", port) as ep:

        async def one(tag: int) -> None:
            data = bytearray(args.size)
            for _ in range(args.each):
                await ep.send(data, tag)
                await ep.recv(data, tag)

        start = clock()
        await asyncio.gather(*(one(tag) for tag in range(args.flight)))
        return float(2 * args.flight * args.each / (clock() - start))


async def streams_server(args: Any, tell: Callable[[int], None]) -> None:
    allow_descriptors()
    ended: asyncio.Queue[None] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(args.each_stream):
            writer.write(await reader.readexactly(args.size))
        await writer.drain()
        ended.put_nowait(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=args.flight)
    tell(server.sockets[0].getsockname()[1])
    for _ in range(args.flight):
        await ended.get()
    server.close()


async def streams_client(args: Any, port: int) -> float:
    allow_descriptors()
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(args.flight)]

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = bytes(args.size)
        for _ in range(args.each_stream):
            writer.write(data)
            await reader.readexactly(args.size)

    start = clock()
    await asyncio.gather(*(one(*stream) for stream in streams))
    took = clock() - start
    for _, writer in streams:
        writer.close()
    return float(2 * args.flight * args.each_stream / took)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flight", type=int, default=1000, help="awaits in flight on each side")
    parser.add_argument("--each", type=int, default=200, help="round trips of each")
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ucx", default="")
    args = parser.parse_args()
    args.each_stream = max(5, args.each // 10)
    peers.place(args)
    rounds = [
        {
            "await": peers.measure(await_server, await_client, args),
            "streams": peers.measure(streams_server, streams_client, args),
        }
        for _ in range(args.rounds)
    ]
    print(json.dumps({"rounds": rounds}))


if __name__ == "__main__":
    main()
