#!/usr/bin/env python3
"""Bandwidth of awaited messages in buffers made beforehand, against raw UCX.

    .venv/bin/python bench/python/bandwidth.py --build build [--size 1048576] [--count 2000] [--window 16] [--rounds 5]

As ucx_perftest's tag_bw: so many messages under way at once, all from one buffer into one. Prints JSON: bytes a second.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Callable
from typing import Any

import peers
from peers import clock


async def server(args: Any, tell: Callable[[int], None]) -> None:
    import hawser

    async with hawser.listen(host="127.0.0.1") as listener:
        tell(listener.port)
        async with await listener.accept() as ep:
            buffer = bytearray(args.size)
            for total in (args.count // 10 + 1, args.count):
                posted = deque(ep.recv(buffer) for _ in range(min(args.window, total)))
                for _ in range(len(posted), total):
                    await posted.popleft()
                    posted.append(ep.recv(buffer))
                while posted:
                    await posted.popleft()
                await ep.send(b"done")


async def client(args: Any, port: int) -> float:
    import hawser

    async with hawser.connect("127.0.0.1", port) as ep:
        buffer = bytearray(args.size)
        took = 0.0
        for total in (args.count // 10 + 1, args.count):
            start = clock()
            posted: deque[Any] = deque()
            for _ in range(total):
                if len(posted) == args.window:
                    await posted.popleft()
                posted.append(ep.send(buffer))
            while posted:
                await posted.popleft()
            await ep.recv(bytearray(4))
            took = clock() - start
        return args.count * args.size / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--size", type=int, default=1 << 20)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--window", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ucx", default="")
    args = parser.parse_args()
    peers.place(args)
    options = ("-t", "tag_bw", "-s", str(args.size), "-n", str(args.count), "-O", str(args.window), "-w", "5")
    rounds = [
        {
            "raw": peers.raw(args, *options)["bandwidth_overall"] * (1 << 20),
            "await": peers.measure(server, client, args),
        }
        for _ in range(args.rounds)
    ]
    print(json.dumps({"rounds": rounds}))


if __name__ == "__main__":
    main()
