"""UCXX's handshake by stream, for programs that want it over endpoints of the core; `Endpoint` has another."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from .._lib.arr import Array
from .utils import hash64bits

_INFO = struct.Struct("QQ")


async def exchange_peer_info(
    endpoint: Any, msg_tag: int, listener: bool, connect_timeout: float = 5.0
) -> dict[str, int]:
    """Tell the peer our tag and learn its own; who listens begins. Raises TimeoutError, RuntimeError (checksum)."""
    theirs = bytearray(_INFO.size)
    mine = Array(_INFO.pack(msg_tag, hash64bits(msg_tag)))
    steps = [lambda: endpoint.stream_send(mine), lambda: endpoint.stream_recv(Array(theirs))]
    for step in steps if listener else reversed(steps):
        await asyncio.wait_for(step().wait(), connect_timeout)
    peer_tag, checksum = _INFO.unpack(theirs)
    if checksum != hash64bits(peer_tag):
        raise RuntimeError(f"Checksum invalid! {checksum:#x} != {hash64bits(peer_tag):#x}")
    return {"msg_tag": peer_tag, "checksum": checksum}


__all__ = ["exchange_peer_info"]
