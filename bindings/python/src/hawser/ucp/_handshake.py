"""How two endpoints get to know each other's tags, and tell of their ends."""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import weakref
from typing import TYPE_CHECKING, Any

from ._libs import ucx_api
from ._libs.exceptions import ErrorCode, HawserError, translate
from .exceptions import UCXError
from .utils import hash64bits

if TYPE_CHECKING:
    from ._endpoint import Endpoint


logger = logging.getLogger("ucx")
# The message that introduces an endpoint, and its tag.
_HELLO_TAG = 0x6877732D68656C6C
_HELLO = struct.Struct("QQQ")


async def exchange_peer_info(
    endpoint: Any, msg_tag: int, ctrl_tag: int, connect_timeout: float, stream_first: str | None = None
) -> dict[str, int]:
    """Tell the peer our tags and learn its own. Raises asyncio.TimeoutError, RuntimeError (checksum).

    stream_first: for UCX-Py itself, which does it by stream: "send" for who listens, "recv" for who connects.
    """
    mine = bytearray(_HELLO.pack(msg_tag, ctrl_tag, hash64bits(msg_tag, ctrl_tag)))
    theirs = bytearray(_HELLO.size)
    if stream_first is None:
        sending = endpoint.send(mine, _HELLO_TAG, connect_timeout)
        await endpoint._recv(theirs, _HELLO_TAG, timeout=connect_timeout)
        await sending
    else:
        steps = [
            lambda: endpoint.stream_send(mine, timeout=connect_timeout),
            lambda: endpoint.stream_recv(theirs, timeout=connect_timeout),
        ]
        for step in steps if stream_first == "send" else reversed(steps):
            await step()
    peer_msg, peer_ctrl, checksum = _HELLO.unpack(theirs)
    if checksum != hash64bits(peer_msg, peer_ctrl):
        raise RuntimeError(f"Checksum invalid! {checksum:#x} != {hash64bits(peer_msg, peer_ctrl):#x}")
    return {"msg_tag": peer_msg, "ctrl_tag": peer_ctrl}


class CtrlMsg:
    """The message that ends an endpoint: opcode 1, and how many messages were sent."""

    fmt = "QQ"
    nbytes = struct.calcsize(fmt)

    @staticmethod
    def serialize(opcode: int, close_after_n_recv: int) -> bytes:
        return struct.pack(CtrlMsg.fmt, opcode, close_after_n_recv)

    @staticmethod
    def deserialize(message: bytes | bytearray) -> tuple[int, int]:
        opcode, n = struct.unpack(CtrlMsg.fmt, message)
        return opcode, n

    @staticmethod
    def handle_ctrl_msg(endpoint_ref: weakref.ref[Endpoint], message: bytearray, operation: Any) -> None:
        """A control message came, or never will."""
        endpoint = endpoint_ref()
        if endpoint is None or endpoint._is_closed() or operation.status < 0 or operation.cancelled():
            return
        opcode, n = CtrlMsg.deserialize(message)
        logger.debug("[Recv shutdown] ep: %s, close_after_n_recv: %d", hex(endpoint.uid), n)
        if opcode != 1:
            raise UCXError(f"Received unknown control opcode: {opcode}")
        endpoint._peer_sent(n)

    @staticmethod
    def setup_ctrl_recv(endpoint: Endpoint) -> None:
        """Receive the control message of the peer once it comes."""
        assert endpoint._tags is not None
        message = bytearray(CtrlMsg.nbytes)
        ref = weakref.ref(endpoint)
        with contextlib.suppress(HawserError):
            operation = endpoint._hawser._recv(message, endpoint._tags["ctrl_recv"])
            operation._on_end(lambda operation: CtrlMsg.handle_ctrl_msg(ref, message, operation))


async def agree_on_tags(
    ep: ucx_api.UCXEndpoint, connect_timeout: float, stream_first: str | None = None
) -> dict[str, int]:
    """The tags of an endpoint that was just connected; it is closed if that fails."""
    seed = os.urandom(16)
    msg_tag = hash64bits("msg_tag", seed, ep.handle)
    ctrl_tag = hash64bits("ctrl_tag", seed, ep.handle)
    try:
        peer = await exchange_peer_info(ep._endpoint, msg_tag, ctrl_tag, connect_timeout, stream_first)
    except HawserError as e:
        ep.close_soon()
        if e.code == ErrorCode.TIMED_OUT:
            raise TimeoutError from e
        raise translate(e, "exchange_peer_info") from e
    except BaseException:
        ep.close_soon()
        raise
    return {
        "msg_send": peer["msg_tag"],
        "msg_recv": msg_tag,
        "ctrl_send": peer["ctrl_tag"],
        "ctrl_recv": ctrl_tag,
    }
