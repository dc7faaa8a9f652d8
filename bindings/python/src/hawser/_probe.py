"""Messages that have arrived and were not received yet."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from . import _constants as c
from . import _core, _errors
from ._unique import Unique

if TYPE_CHECKING:
    from ._worker import Worker


class Probed:
    """A message that has arrived: length in bytes, tag, endpoint it came from."""

    __slots__ = ("__weakref__", "endpoint", "length", "pending", "tag")

    def __init__(self, length: int, tag: int, endpoint: Any, pending: bool) -> None:
        self.length = length
        self.tag = tag
        self.endpoint = endpoint
        self.pending = pending

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.length} bytes, tag {self.tag:#x}>"


class Message(Probed, Unique):
    """A message that was taken out of matching: receive it, or drop it."""

    __slots__ = ("_id", "_worker")

    def __init__(self, worker: Worker, id: int, *probed: Any) -> None:
        super().__init__(*probed)
        self._worker = worker
        self._id = id

    def recv(self, buffer: Any, timeout: float | None = None) -> _core.Operation[int]:
        """Receive its data into a writable buffer; gives the length in bytes."""
        if not self._id:
            raise _errors.from_code(_errors.ErrorCode.BAD_ID, "the message was received, put back or dropped")
        operation = _core.message_recv(self._worker, self._id, buffer, timeout)
        self._id = 0
        return operation

    def put_back(self) -> None:
        """Give it back: the next receive that matches gets it."""
        if self._id:
            _core.message_return(self._id)
            self._id = 0

    def drop(self) -> None:
        """Throw it away."""
        if self._id:
            _core.close(self._id)
            self._id = 0

    def __del__(self) -> None:
        with contextlib.suppress(_errors.HawserError):
            self.drop()


def probe(worker: Worker, source: int, tag: int, mask: int, take: bool) -> Any:
    found = _core.probe(source, tag, mask, take)
    if found is None:
        return None
    length, its_tag, endpoint, flags, message = found
    about = (length, its_tag, worker._objects.get(endpoint), bool(flags & c.EventFlag.RNDV))
    return Message(worker, message, *about) if take else Probed(*about)
