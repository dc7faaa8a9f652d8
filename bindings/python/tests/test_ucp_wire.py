"""wire="ucx-py": talking to programs that run UCX-Py itself, by its own handshake."""

import asyncio
import contextlib
import hashlib
import os
import struct
import subprocess
import sys

import pytest
from ucp_support import fresh_ucp  # noqa: F401

import hawser
import ucp
from hawser import _constants as c

BIG = 1 << 20
HELLO = struct.Struct("QQQ")


def hash64(*args):
    """The first 8 bytes of the SHA-1 of the arguments as Python writes a tuple."""
    return int.from_bytes(hashlib.sha1(repr(args).encode()).digest()[:8], "big")


def hello(msg, ctrl):
    return HELLO.pack(msg, ctrl, hash64(msg, ctrl))


def unpacked(data):
    msg, ctrl, checksum = HELLO.unpack(data)
    assert checksum == hash64(msg, ctrl)
    return msg, ctrl


async def received(peer, length, tag):
    data = bytearray(length)
    assert await peer.recv(data, tag=tag, timeout=20) == length
    return data


async def test_what_a_listener_says():
    taken = asyncio.get_running_loop().create_future()
    ucp.init(wire="ucx-py")
    listener = ucp.create_listener(taken.set_result)
    with hawser.Context() as context, hawser.Worker(context) as worker:
        async with hawser.connect(ucp.get_address(), listener.port, worker=worker, raw=True) as peer:
            said = bytearray(HELLO.size)
            await peer.stream_recv(said, timeout=20)  # it speaks first
            msg, ctrl = unpacked(said)
            await peer.stream_send(hello(0x1111, 0x2222))
            ep = await taken
            # A message goes by the tag that its receiver chose, hashed with the program's own.
            await ep.send(b"default")
            assert await received(peer, 7, 0x1111) == b"default"
            await ep.send(b"seven", tag=7)
            assert await received(peer, 5, hash64(0x1111, 7)) == b"seven"
            got = bytearray(5)
            await peer.send(b"hello", tag=hash64(msg, hash("x")))
            await ep.recv(got, tag="x")
            assert got == b"hello"
            await ep.am_send(b"active")
            header, data = await peer.recv_am(0)
            assert (header, bytes(data)) == (b"\0\0\0\0", b"active")
            await peer.send_am(b"answer", 0, b"\0\0\0\0")
            assert await ep.am_recv() == b"answer"
            # "Close once you have received three": it has had a tagged and an active message.
            await peer.send(struct.pack("QQ", 1, 3), tag=ctrl)
            await asyncio.sleep(0.05)
            assert not ep.closed()
            await peer.send(b"last!", tag=msg)
            await ep.recv(got)
            assert got == b"last!"
            assert ep.closed()
    listener.close()


@contextlib.asynccontextmanager
async def dialled():
    """A plain UCX program that ucp has dialled, and that dial."""
    ucp.init(wire="ucx-py")
    with hawser.Context() as context, hawser.Worker(context) as worker:
        async with hawser.listen(worker=worker, raw=True) as listener:
            connecting = asyncio.create_task(ucp.create_endpoint(ucp.get_address(), listener.port))
            async with await listener.accept() as peer:
                yield peer, connecting


async def test_what_who_connects_says():
    async with dialled() as (peer, connecting):
        assert peer.info()["reason"] == c.Reason.RAW
        said = bytearray(HELLO.size)
        heard = peer.stream_recv(said)
        await asyncio.sleep(0.2)
        assert not heard.done()  # it waits for us to speak
        await peer.stream_send(hello(0x3333, 0x4444))
        await heard
        msg, _ = unpacked(said)
        ep = await connecting
        await ep.send(b"one")
        assert await received(peer, 3, 0x3333) == b"one"
        await peer.send(b"two", tag=msg)
        got = bytearray(3)
        await ep.recv(got)
        assert got == b"two"
        await ep.close()
        # Opcode 1: shut down; it has sent one message.
        assert struct.unpack("QQ", await received(peer, 16, 0x4444)) == (1, 1)


@pytest.mark.parametrize("attempt", range(5))
async def test_a_receive_ends_when_its_peer_has_gone(attempt):  # it depends on what the kernel tells first
    async with dialled() as (peer, connecting):
        await peer.stream_send(hello(1, 2))
        await peer.stream_recv(bytearray(HELLO.size))
        received = asyncio.ensure_future((await connecting).recv(bytearray(8)))
        await asyncio.sleep(0)
        peer.abort()
        async with asyncio.timeout(1.5):  # nothing else wakes the loop
            with pytest.raises(ucp.exceptions.UCXCanceled):
                await received


async def test_bad_checksum():
    async with dialled() as (peer, connecting):
        await peer.stream_send(HELLO.pack(1, 2, 3))
        with pytest.raises(RuntimeError, match="Checksum invalid!"):
            await connecting


async def test_silent_peer():
    ucp.init(wire="ucx-py", connect_timeout=0.2)
    with hawser.Context() as context, hawser.Worker(context) as worker:
        async with hawser.listen(worker=worker, raw=True) as listener:
            with pytest.raises(asyncio.TimeoutError):
                await ucp.create_endpoint(ucp.get_address(), listener.port)


def test_names_of_wires(monkeypatch):
    with pytest.raises(ValueError, match="wire"):
        ucp.init(wire="carrier pigeon")
    monkeypatch.setenv("HAWSER_UCP_WIRE", "ucx-py")
    ucp.init()
    assert ucp.core._ctx.worker.of_ucxpy
    ucp.reset()
    ucp.init(wire="hawser")
    assert not ucp.core._ctx.worker.of_ucxpy


# ---- Two processes: the same program at both ends, for Hawser and for UCX-Py ----

# Says what it runs, then: default tags, a number as tag, objects, active messages, and a close by either side.
PROGRAM = f"""
import asyncio, sys, ucp
BIG = {BIG}

async def talk(ep, first):
    for n in (1, 8, 5000, BIG):
        for tag in (None, 7):
            data = bytes(range(256)) * (n // 256) + b"x" * (n % 256)
            got = bytearray(n)
            if first:
                await ep.send(data, tag=tag)
                await ep.recv(got, tag=tag)
            else:
                await ep.recv(got, tag=tag)
                await ep.send(got, tag=tag)
            assert got == data, n
        if first:
            await ep.am_send(data)
            assert bytes(await ep.am_recv()) == data, n
        else:
            await ep.am_send(await ep.am_recv())
    if first:
        await ep.send_obj(b"object")
        assert await ep.recv_obj() == b"taken"
    else:
        assert await ep.recv_obj() == b"object"
        await ep.send_obj(b"taken")

async def part(ep, closes):
    if closes:
        await ep.recv(bytearray(1))
        await ep.close()
        return
    # Who closes has the last word of the other: what is under way when a process ends may be lost.
    await ep.send(b"!")
    try:
        await ep.recv(bytearray(1))
        raise AssertionError("received what nobody sent")
    except ucp.exceptions.UCXCanceled:
        pass
    assert ep.closed()

async def serve():
    over = asyncio.get_running_loop().create_future()
    async def peer(ep):
        await talk(ep, False)
        if not over.done():
            over.set_result(ep)
    listener = ucp.create_listener(peer)
    print(listener.port, ucp.__file__, flush=True)
    ep = await over
    del peer
    await part(ep, sys.argv[2] == "server")

async def ask(port):
    ep = await ucp.create_endpoint(ucp.get_address(), port)
    await talk(ep, True)
    await part(ep, sys.argv[2] == "client")

async def main():
    await asyncio.wait_for(serve() if sys.argv[1] == "serve" else ask(int(sys.argv[1])), 100)

asyncio.run(main())
print("fine", flush=True)
"""


def start(program, python, *args, **more):
    environment = {k: v for k, v in os.environ.items() if k != "HAWSER_UCP_WIRE"} | more
    return subprocess.Popen([*python, str(program), *args], stdout=subprocess.PIPE, text=True, env=environment)


def exchange(folder, server, client, closer):
    """Run PROGRAM at both ends; `server` and `client`: (interpreter, environment)."""
    program = folder / "talk.py"
    program.write_text(PROGRAM)
    processes = [start(program, server[0], "serve", closer, **server[1])]
    try:
        port, where = processes[0].stdout.readline().split()
        processes.append(start(program, client[0], port, closer, **client[1]))
        said = [process.communicate(timeout=110)[0].split()[-1:] for process in processes]
        assert said == [["fine"]] * 2 and [process.returncode for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return where


OURS = ([sys.executable], {"HAWSER_UCP_WIRE": "ucx-py"})
PLAIN = ([sys.executable], {})


@pytest.mark.parametrize("closer", ["server", "client"])
def test_two_processes(tmp_path, closer):
    exchange(tmp_path, OURS, OURS, closer)


def test_a_listener_serves_hawser_too(tmp_path):
    exchange(tmp_path, OURS, PLAIN, "client")


def real_ucxpy():
    """An interpreter that has UCX-Py itself, on the UCX that these tests run on: $HAWSER_REAL_UCXPY."""
    python = os.environ.get("HAWSER_REAL_UCXPY", "").split()
    if not python:
        pytest.skip("no UCX-Py here: HAWSER_REAL_UCXPY names no interpreter that can import it")
    version = [*python, "-c", "import ucp; assert 'hawser' not in ucp.__file__; print(*ucp.get_ucx_version())"]
    said = subprocess.run(version, stdout=subprocess.PIPE, text=True)
    if said.returncode != 0:
        pytest.skip(f"{python[0]} cannot import UCX-Py")
    if tuple(map(int, said.stdout.split())) != ucp.get_ucx_version():
        pytest.skip(f"UCX-Py runs on UCX {said.stdout.strip()}, and both ends need the same")
    return (python, {})


@pytest.mark.parametrize("closer", ["server", "client"])
@pytest.mark.parametrize("listens", ["hawser", "ucx-py"])
def test_real_ucxpy(tmp_path, listens, closer):
    real = real_ucxpy()
    ends = (OURS, real) if listens == "hawser" else (real, OURS)
    where = exchange(tmp_path, *ends, closer)
    assert ("hawser" in where) == (listens == "hawser")
