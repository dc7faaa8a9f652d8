"""Sends a file to several receivers at once.

broadcast.py send FILE RECEIVERS, then on each of them broadcast.py receive HOST PORT FILE.

The file is mapped, so every receiver is sent the same memory; each takes at its own speed, with a few
pieces under way.
"""

import asyncio
import hashlib
import json
import mmap
import sys
from collections import deque

import hawser

PIECE = 4 << 20
UNDER_WAY = 4
HEAD, DATA = 1, 2


async def send_to(ep, view, head):
    async with ep:
        await ep.send(head, HEAD)
        sends = deque()
        for at in range(0, len(view), PIECE):
            if len(sends) == UNDER_WAY:
                await sends.popleft()
            sends.append(ep.send(view[at : at + PIECE], DATA))
        for operation in sends:
            await operation
        assert await ep.recv(tag=HEAD) == b"ok"


async def send(path, receivers):
    with open(path, "rb") as file:
        file.seek(0, 2)
        size = file.tell()
        view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if size else memoryview(b"")
        head = json.dumps({"size": size, "sha256": hashlib.sha256(view).hexdigest()}).encode()
        async with hawser.listen() as listener:
            print(listener.port, flush=True)
            peers = [await listener.accept() for _ in range(receivers)]
            await asyncio.gather(*(send_to(ep, view, head) for ep in peers))
    print(f"{size} bytes to {receivers} receivers")


async def receive(host, port, path):
    async with hawser.connect(host, port) as ep:
        head = json.loads(await ep.recv(tag=HEAD))
        digest = hashlib.sha256()
        piece = bytearray(PIECE)
        left = head["size"]
        with open(path, "wb") as file:
            while left:
                n = await ep.recv(piece, DATA)
                file.write(memoryview(piece)[:n])
                digest.update(memoryview(piece)[:n])
                left -= n
        if digest.hexdigest() != head["sha256"]:
            sys.exit(f"{path} is damaged")
        await ep.send(b"ok", HEAD)
    print(f"{head['size']} bytes in {path}")


def main(command, *args):
    if command == "send":
        asyncio.run(send(args[0], int(args[1])))
    else:
        asyncio.run(receive(args[0], int(args[1]), args[2]))


if __name__ == "__main__":
    main(*sys.argv[1:])
