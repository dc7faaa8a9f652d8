"""Sends back what it gets: echo.py serve [PORT], then echo.py send HOST PORT TEXT..."""

import asyncio
import contextlib
import sys

import hawser


async def answer(ep):
    async with ep:
        with contextlib.suppress(hawser.PeerClosedError):
            while True:
                await ep.send(await ep.recv())


async def serve(port=0):
    clients = set()
    async with hawser.listen(port=port) as listener:
        print(listener.port, flush=True)
        async for ep in listener:
            task = asyncio.create_task(answer(ep))
            clients.add(task)
            task.add_done_callback(clients.discard)


async def send(host, port, *texts):
    async with hawser.connect(host, port) as ep:
        for text in texts:
            await ep.send(text.encode())
            print((await ep.recv()).decode())


def main(command, *args):
    with contextlib.suppress(KeyboardInterrupt):
        if command == "serve":
            asyncio.run(serve(*map(int, args)))
        else:
            asyncio.run(send(args[0], int(args[1]), *args[2:]))


if __name__ == "__main__":
    main(*sys.argv[1:])
