"""Two processes of the Python that runs this exchange messages over an installed wheel; prints what carried them."""

import asyncio
import hashlib
import platform
import subprocess
import sys

import hawser
import hawser._swig

# Short, and long enough for the rendezvous of every transport.
MESSAGES = [b"from the wheel", bytes(range(256)) * 4096]


async def echo() -> None:
    async with hawser.listen(host="127.0.0.1") as listener:
        print(listener.port, flush=True)
        async with await listener.accept() as endpoint:
            for _ in MESSAGES:
                await endpoint.send(await endpoint.recv(tag=1), tag=2)
            assert await endpoint.recv_obj(tag=3) == {"last": [1, 2, 3]}


async def ask(port: int) -> None:
    async with hawser.connect("127.0.0.1", port) as endpoint:
        for message in MESSAGES:
            await endpoint.send(message, tag=1)
            answer = await endpoint.recv(tag=2)
            assert hashlib.sha256(answer).digest() == hashlib.sha256(message).digest()
        await endpoint.send_obj({"last": [1, 2, 3]}, tag=3)


def main() -> None:
    if sys.argv[1:] == ["echo"]:
        asyncio.run(echo())
        return
    other = subprocess.Popen([sys.executable, __file__, "echo"], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    try:
        asyncio.run(asyncio.wait_for(ask(int(other.stdout.readline())), 60))
        assert other.wait(60) == 0
    finally:
        other.kill()
    ucx = hawser.library()
    version = f"{ucx['ucx_major']}.{ucx['ucx_minor']}.{ucx['ucx_release']}"
    python = f"CPython {platform.python_version()} {platform.machine()}, {platform.libc_ver()[1]}"
    print(f"{python}: exchanged {len(MESSAGES)} messages over UCX {version} in {ucx['ucx_path']}")
    print(f"hawser in {hawser.__file__}")


if __name__ == "__main__":
    main()
