"""Fast, safe messaging between processes over UCX.

    async with hawser.connect("10.0.0.1", 13337) as ep:
        await ep.send(b"hello")
        answer = await ep.recv()

asyncio first; `hawser.sync` has a blocking twin of every call, `hawser.ucp` the API of UCX-Py.
"""

import atexit as _atexit
from typing import Any

from . import _core, _errors
from ._address import AddressInfo, address_info, address_items
from ._connect import Connecting, connect, connect_address
from ._constants import FOREVER, Memory
from ._context import Context
from ._core import Buffer, Operation, Segments, memory
from ._defaults import _close_defaults, default_worker
from ._endpoint import Endpoint
from ._errors import *  # noqa: F403
from ._listener import Listener, Request, listen
from ._probe import Message, Probed
from ._remote import Plan, RegisteredMemory, RemoteKey
from ._worker import Worker

__version__ = "0.1.0"


def library(ucx: str | None = None) -> dict[str, Any]:
    """Load UCX, if that has not happened, and tell which one and why.

    ucx: "system", "wheel" or a folder; None for the automatic choice.
    """
    return _core.library(ucx)


_atexit.register(_close_defaults)

__all__ = [
    "FOREVER",
    "AddressInfo",
    "Buffer",
    "Connecting",
    "Context",
    "Endpoint",
    "Listener",
    "Memory",
    "Message",
    "Operation",
    "Plan",
    "Probed",
    "RegisteredMemory",
    "RemoteKey",
    "Request",
    "Segments",
    "Worker",
    "address_info",
    "address_items",
    "connect",
    "connect_address",
    "default_worker",
    "library",
    "listen",
    "memory",
    *(name for name in _errors.__all__ if name.endswith("Error")),
]
