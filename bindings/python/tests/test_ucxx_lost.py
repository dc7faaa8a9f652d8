"""UCXX programs whose peer is killed in the midst of it: a send never looks like a success. TIMEOUT: 300"""

import asyncio
import os
import signal

import numpy as np
import pytest
from ucp_support import event_loop_policy, fresh_ucxx, mp  # noqa: F401

from hawser import ucxx
from hawser.ucxx.exceptions import UCXCanceledError, UCXConnectionResetError

BIG = 1 << 24  # no transport takes so much of a peer that does not receive
BY_ADDRESS = {"tag": 7, "force_tag": True}


def idle(pipe, closes):
    """A peer that receives nothing. closes: it closes the endpoint when it is told to."""

    async def main():
        met = asyncio.get_running_loop().create_future()
        listener = ucxx.create_listener(met.set_result)
        pipe.send((listener.port, bytes(ucxx.get_worker_address())))
        if closes:
            ep = await met
            await asyncio.to_thread(pipe.recv)
            await ep.close()
        await asyncio.sleep(600)

    asyncio.run(main())


class Peer:
    """That process, and an endpoint connected to it."""

    async def connect(self, by_address=False, closes=False):
        self.pipe, there = mp.Pipe()
        self.process = mp.Process(target=idle, args=(there, closes), daemon=True)
        self.process.start()
        port, address = await asyncio.to_thread(self.pipe.recv)
        if by_address:
            address = ucxx.get_ucx_address_from_buffer(address)
            self.ep = await ucxx.create_endpoint_from_worker_address(address)
        else:
            self.ep = await ucxx.create_endpoint(ucxx.get_address(), port)
        return self.ep

    async def kill(self):
        self.process.kill()
        await asyncio.to_thread(self.process.join)


@pytest.fixture
async def peer():
    peer = Peer()
    yield peer
    await peer.kill()
    peer.ep.abort()


SENDS = {
    "send": lambda ep, at: ep.send(np.ones(BIG, "u1"), **at),
    "send_multi": lambda ep, at: ep.send_multi([np.ones(BIG, "u1"), np.ones(BIG, "u1")], **at),
}
RECEIVES = {
    "recv": lambda ep, at: ep.recv(bytearray(1), **at),
    "recv_multi": lambda ep, at: ep.recv_multi(**at),
    "am_recv": lambda ep, at: ep.am_recv(),
}


@pytest.mark.parametrize("by_address", [False, True])
@pytest.mark.parametrize("what", [*SENDS, *RECEIVES])
async def test_what_waits_for_a_peer_that_is_killed(peer, what, by_address):
    ep = await peer.connect(by_address)
    at = BY_ADDRESS if by_address else {}
    waiting = asyncio.ensure_future({**SENDS, **RECEIVES}[what](ep, at))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await peer.kill()
    with pytest.raises(UCXConnectionResetError if what in SENDS else UCXCanceledError):
        await asyncio.wait_for(waiting, 30)
    for call in (*SENDS.values(), *RECEIVES.values()):
        with pytest.raises(UCXConnectionResetError):
            await asyncio.wait_for(call(ep, at), 30)


@pytest.mark.parametrize("what", ["am_send", "am_send_iov"])
async def test_active_messages_to_a_peer_that_is_killed(peer, what):
    """A peer takes those that it did not ask for, too, unless it stands still."""
    ep = await peer.connect()
    os.kill(peer.process.pid, signal.SIGSTOP)
    message = np.ones(BIG, "u1")
    send = {"am_send": lambda: ep.am_send(message), "am_send_iov": lambda: ep.am_send_iov([message])}[what]
    waiting = asyncio.ensure_future(send())
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await peer.kill()
    with pytest.raises(UCXConnectionResetError):
        await asyncio.wait_for(waiting, 30)


@pytest.mark.parametrize("what", SENDS)
async def test_what_is_sent_to_a_peer_that_closes_just_ends(peer, what):
    """As in UCXX."""
    ep = await peer.connect(closes=True)
    waiting = asyncio.ensure_future(SENDS[what](ep, {}))
    await asyncio.sleep(0.2)
    peer.pipe.send("close")
    assert await asyncio.wait_for(waiting, 30) is None


@pytest.mark.parametrize("what", ["tag_recv", "tag_recv_multi", "tag_send_multi"])
async def test_requests_of_the_core(peer, what):
    ep = (await peer.connect())._ep
    tag = ucxx.types.Tag(1)
    big = np.ones(BIG, "u1")
    request = {
        "tag_recv": lambda: ep.tag_recv(bytearray(1), tag),
        "tag_recv_multi": lambda: ep.tag_recv_multi(tag),
        "tag_send_multi": lambda: ep.tag_send_multi([big, big], tag),
    }[what]()
    await peer.kill()
    with pytest.raises((UCXCanceledError, UCXConnectionResetError) if "send" in what else UCXCanceledError):
        await asyncio.wait_for(request.wait(), 30)
