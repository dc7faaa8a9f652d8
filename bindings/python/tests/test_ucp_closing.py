"""UCX-Py programs: what becomes of sends when an endpoint, the context or the process ends. TIMEOUT: 300"""

import asyncio
import os
import signal
import sys
import time

import pytest
from ucp_support import event_loop_policy, fresh_ucp, mp  # noqa: F401

import ucp

_LARGE = 50_000_000
_SMALL = 1000
_COUNT = 50


async def _receive(port, large):
    ep = await ucp.create_endpoint(ucp.get_address(), port)
    await asyncio.sleep(0.3)
    message = bytearray(_SMALL)
    for i in range(_COUNT):
        await ep.recv(message)
        assert message == bytes([i]) * _SMALL
    if large:
        message = bytearray(_LARGE)
        await ep.recv(message)
        assert message == b"x" * _LARGE
    else:
        with pytest.raises(ucp.exceptions.UCXCanceled):
            await ep.recv(bytearray(1), tag="none comes")
    ep.abort()


def receiving(port, large):
    """A peer that is late: it receives the small messages, and the large one if told so."""
    asyncio.run(_receive(port, large))


async def _idle(port):
    ep = await ucp.create_endpoint(ucp.get_address(), port)
    await asyncio.sleep(100)
    ep.abort()


def idle(port):
    """A peer that never receives."""
    asyncio.run(_idle(port))


async def peer(target, *args):
    """The endpoint of a process that connects here."""
    met = asyncio.get_running_loop().create_future()
    listener = ucp.create_listener(met.set_result)
    process = mp.Process(target=target, args=(listener.port, *args))
    process.start()
    ep = await met
    listener.close()
    return process, ep


async def ended(process):
    while process.is_alive():
        await asyncio.sleep(0.01)
    process.join()
    return process.exitcode


async def send_small(ep):
    for i in range(_COUNT):
        await ep.send(bytes([i]) * _SMALL)


_SENDS = {
    "send": lambda ep: ep.send(b"x" * _LARGE),
    "send by tag": lambda ep: ep.send(b"x" * _LARGE, tag=3),
    "core": lambda ep: ucp.comm.tag_send(ep._ep, ucp.Array(b"x" * _LARGE), _LARGE, 7),
}


@pytest.mark.parametrize("transports", ["all", "tcp"])
@pytest.mark.parametrize("how", ["abort", "close"])
@pytest.mark.parametrize("what", _SENDS)
async def test_a_send_that_nobody_receives_ends(what, how, transports):
    """It ends at once, or after the second that close() gives it; what was sent before it arrives."""
    ucp.init({"TLS": transports})
    process, ep = await peer(receiving, False)
    await send_small(ep)
    sending = asyncio.ensure_future(_SENDS[what](ep))
    await asyncio.sleep(0.05)
    assert not sending.done()
    start = time.monotonic()
    if how == "abort":
        ep.abort()
    else:
        await ep.close()
    with pytest.raises(ucp.exceptions.UCXCanceled):
        await sending
    assert time.monotonic() - start < (1 if how == "abort" else 3)
    assert await ended(process) == 0


async def test_close_lets_a_send_arrive():
    process, ep = await peer(receiving, True)
    await send_small(ep)
    sending = asyncio.ensure_future(ep.send(b"x" * _LARGE))
    await asyncio.sleep(0.05)
    await ep.close()
    assert await sending is True
    assert await ended(process) == 0


@pytest.mark.parametrize("how", ["abort", "close"])
def test_reset_does_not_wait_for_who_never_receives(how):
    async def main():
        process, ep = await peer(idle)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ep.send(bytes(_LARGE)), 0.1)
        sending = asyncio.ensure_future(ep.send(bytes(_LARGE)))
        await asyncio.sleep(0.05)
        if how == "abort":
            ep.abort()
        else:
            await ep.close()
        return process, sending

    process, _sending = asyncio.run(main())
    start = time.monotonic()
    ucp.reset()
    assert time.monotonic() - start < 2
    process.kill()
    process.join()


_EXITS = """
import asyncio, sys, ucp
async def main():
    global ep, sending
    ep = await ucp.create_endpoint(ucp.get_address(), int(sys.argv[1]))
    sending = asyncio.ensure_future(ep.send(bytes(50_000_000)))
    await asyncio.sleep(0.05)
asyncio.run(main())
"""


async def test_a_process_ends_that_sends_to_who_never_receives():
    met = asyncio.get_running_loop().create_future()
    listener = ucp.create_listener(met.set_result)
    start = time.monotonic()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _EXITS, str(listener.port))
    ep = await met
    assert await process.wait() == 0
    assert time.monotonic() - start < 4
    ep.abort()
    listener.close()


async def test_peers_that_stand_still_are_waited_for_together():
    processes, eps = zip(*[await peer(idle) for _ in range(3)], strict=True)
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    start = time.monotonic()
    ucp.core._ctx.worker.close()
    assert time.monotonic() - start < 9
    for process, ep in zip(processes, eps, strict=True):
        ep.abort()
        process.kill()
        process.join()
