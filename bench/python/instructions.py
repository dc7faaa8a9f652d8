#!/usr/bin/env python3
"""A number of messages through Python, for callgrind to count instructions: run it with two numbers and compare.

    valgrind --tool=callgrind .venv/bin/python bench/python/instructions.py await|sync|ucp|loop MESSAGES

Both ends are in this process, on one worker, so that every message costs the same instructions however busy the machine
is. A message is one send and one receive, the two calls that half a round trip makes. "loop" does nothing but go round.
"""

from __future__ import annotations

import asyncio
import sys

import hawser
import hawser.sync

CONFIG = {"TLS": "sysv,self,tcp"}


async def by_await(messages: int) -> None:
    with hawser.Context(config=CONFIG) as context:
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            left = await hawser.connect("127.0.0.1", listener.port, worker=worker)
            right = await listener.accept()
            out, into = bytearray(8), bytearray(8)
            for _ in range(messages):
                await left.send(out)
                await right.recv(into)


def by_sync(messages: int) -> None:
    with (
        hawser.Context(config=CONFIG) as context,
        hawser.Worker(context) as worker,
        hawser.sync.listen(host="127.0.0.1", worker=worker) as listener,
        hawser.sync.connect("127.0.0.1", listener.port, worker=worker) as left,
        listener.accept() as right,
    ):
        out, into = bytearray(8), bytearray(8)
        for _ in range(messages):
            left.send(out)
            right.recv(into)


async def by_ucp(messages: int) -> None:
    from hawser import ucp

    ucp.init(options=CONFIG)
    ready: asyncio.Future[ucp.Endpoint] = asyncio.get_running_loop().create_future()

    async def serve(endpoint: ucp.Endpoint) -> None:
        ready.set_result(endpoint)

    listener = ucp.create_listener(serve)
    left = await ucp.create_endpoint("127.0.0.1", listener.port)
    right = await ready
    out, into = bytearray(8), bytearray(8)
    for _ in range(messages):
        await left.send(out)
        await right.recv(into)
    await left.close()
    await right.close()
    listener.close()


async def loop(messages: int) -> None:
    for _ in range(messages):
        pass


def main(way: str, messages: int) -> None:
    if way == "sync":
        by_sync(messages)
    else:
        asyncio.run({"await": by_await, "ucp": by_ucp, "loop": loop}[way](messages))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
