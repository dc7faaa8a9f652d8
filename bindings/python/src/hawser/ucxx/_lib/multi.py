"""Multi-buffer messages to peers by worker address, which tagged messages alone reach.

A header of fixed size tells of up to 100 frames, and whether another header follows; after the headers come the frames.
All have one tag, so whoever receives with a tag takes one message after the other.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import threading
import weakref
from collections import deque
from typing import Any

from hawser import _core
from hawser._errors import HawserError
from hawser.ucp._libs._request import Call, Callback, view_of
from hawser.ucp._libs.arr import Array

from ..exceptions import UCXCanceledError, UCXMessageTruncatedError
from .requests import MultiOutcome, empty

_FRAMES = 100
_HEADER = struct.Struct(f"<?Q{_FRAMES}i{_FRAMES}Q")


def headers_of(arrays: list[Array]) -> list[bytes]:
    """The headers that announce these frames."""
    starts = range(0, max(len(arrays), 1), _FRAMES)
    return [_header(arrays[start : start + _FRAMES], start != starts[-1]) for start in starts]


def _header(arrays: list[Array], more: bool) -> bytes:
    rest = [0] * (_FRAMES - len(arrays))
    cuda = [int(array.cuda) for array in arrays]
    return _HEADER.pack(more, len(arrays), *cuda, *rest, *(array.nbytes for array in arrays), *rest)


def _parse(header: bytearray) -> tuple[bool, tuple[int, ...]]:
    more, count, *rest = _HEADER.unpack(header)
    if count > _FRAMES:
        raise UCXMessageTruncatedError("what came is no header of a multi-buffer message")
    return more, tuple(rest[_FRAMES : _FRAMES + count])


def send(endpoint: Any, arrays: list[Array], tag: int) -> MultiOutcome:
    """Send the frames; the outcome fails with what failed first."""
    outcome = MultiOutcome(parts=len(arrays))
    messages = [*headers_of(arrays), *(view_of(array, array.nbytes, False) for array in arrays)]
    failures: list[Exception] = []
    ended = itertools.count(1)

    def one_ended(_request: Any, exception: Exception | None) -> None:
        if exception is not None:
            failures.append(exception)
        if next(ended) == len(messages):
            outcome.end(failures[0] if failures else None)

    for message in messages:
        operation = endpoint._endpoint.send(message, tag)
        call = Call(operation, Callback(one_ended), "tag_send_multi", owner=endpoint)
        if operation.done():
            call.call()
        else:
            call.start()
    return outcome


class _Incoming:
    """A message on its way: first its headers, then its frames."""

    def __init__(self, worker: Any, tag: int, mask: int) -> None:
        self._worker = worker
        self._tag = tag
        self._mask = mask
        self._lengths: list[int] = []
        self._header = bytearray(_HEADER.size)
        self._operations: list[Any] = []
        self.unnoticed = True  # nothing of it has come
        self.listed = False
        self.canceling = False
        self.error: Exception | None = None
        self.buffers: list[Any] = []

    def begin(self, line: Line) -> None:
        """Receive the next header."""
        self._post(line, self._header)

    def _post(self, line: Line, buffer: Any) -> None:
        operation = self._worker.recv(buffer, self._tag, self._mask)
        self._operations.append(operation)
        operation._on_end(line.turn)

    @property
    def done(self) -> bool:
        """Whether all of it has come, or nothing more will."""
        return self.error is not None or (self.listed and all(operation.done() for operation in self._operations))

    def advance(self, line: Line) -> None:
        """Go on from a header that came, and see what failed."""
        try:
            while not self.listed and self.error is None and self._operations[-1].done():
                self._header_came(line)
            if self.error is None and self.done:
                for operation in self._operations:
                    operation.result()
        except Exception as e:
            self.error = e

    def _header_came(self, line: Line) -> None:
        operation = self._operations.pop()
        if operation.result() != _HEADER.size:
            raise UCXMessageTruncatedError("what came is no header of a multi-buffer message")
        self.unnoticed = False
        self._tag, self._mask = operation.tag, (1 << 64) - 1
        more, lengths = _parse(self._header)
        self._lengths += lengths
        if more:
            self.begin(line)
            return
        self.buffers = [empty(length) for length in self._lengths]
        for buffer in self.buffers:
            self._post(line, buffer)
        self.listed = True

    def cancel(self) -> None:
        """Receive nothing more of it."""
        self.canceling = True
        for operation in self._operations:
            with contextlib.suppress(HawserError):  # it has just ended
                _core.cancel(operation.id)


class Line:
    """The receives of one tag and what comes for them, each in its order.

    Receives come, and operations end, on any thread and also inside of a garbage collection: each says that there is
    something to do, and whoever came first does it for all. Nobody waits.
    """

    def __init__(self, worker: Any, tag: int, mask: int) -> None:
        self._key = (worker, tag, mask)
        self._waiting: deque[MultiOutcome] = deque()
        self._incoming: deque[_Incoming] = deque()
        self._returned: deque[_Incoming] = deque()
        self._busy = threading.Lock()
        self._again = False

    @property
    def idle(self) -> bool:
        """Whether nothing is going on."""
        return not self._waiting and not self._incoming and not self._returned

    def receive(self, outcome: MultiOutcome) -> None:
        """Have it be the outcome of a message that comes."""
        self._waiting.append(outcome)
        self.turn()

    def give_back(self, buffers: list[Any]) -> None:
        """Who waited for this message was interrupted before it went on: it is the next one's."""
        message = _Incoming(*self._key)
        message.listed, message.unnoticed, message.buffers = True, False, buffers
        self._returned.append(message)
        self.turn()

    def give_up(self) -> None:
        """Nothing more may come of what has begun to come, and nobody waits for it: forget it."""
        for message in list(self._incoming)[len(self._waiting) :]:
            message.cancel()
        self.turn()

    def turn(self, _operation: Any = None) -> None:
        """Do what there is to do, or leave it to who is at it."""
        self._again = True
        while self._again and self._busy.acquire(blocking=False):
            try:
                self._again = False
                self._go_on()
            finally:
                self._busy.release()

    def _go_on(self) -> None:
        while self._returned:
            self._incoming.appendleft(self._returned.pop())
        for outcome in list(self._waiting):
            if outcome.completed:  # it was cancelled
                self._waiting.remove(outcome)
        for message in list(self._incoming):
            message.advance(self)
            if message.error is not None and message.canceling:
                self._incoming.remove(message)
        while self._incoming and self._incoming[0].done and self._deliver(self._incoming[0]):
            self._incoming.popleft()
        self._match()

    def _deliver(self, message: _Incoming) -> bool:
        """Whether somebody took it; nobody needs a failure."""
        while self._waiting:
            outcome = self._waiting.popleft()
            outcome.buffers, outcome.parts = message.buffers, len(message.buffers)
            if outcome.end(message.error):
                return True
        return message.error is not None

    def _match(self) -> None:
        """One message at a time: the next header may come when the frames of the last message can."""
        while len(self._waiting) > len(self._incoming) and all(m.listed or m.error for m in self._incoming):
            message = _Incoming(*self._key)
            try:
                message.begin(self)
            except Exception as e:
                self._waiting.popleft().end(e)
                continue
            self._incoming.append(message)
        if len(self._waiting) < len(self._incoming) and self._incoming[-1].unnoticed:
            self._incoming[-1].cancel()


class AddressedOutcome(MultiOutcome):
    """A receive from a peer by worker address. It ends at once when it is cancelled, and the message that was on its
    way is the next one's."""

    def __init__(self, line: Line) -> None:
        super().__init__(receives=True)
        self.line = line

    def cancel(self) -> None:
        """End it."""
        if self.end(UCXCanceledError("While waiting for tag_recv_multi it was cancelled")):
            self.line.turn()

    def cancel_request(self) -> int:
        """Its endpoint is closed, or the peer gone: so is the message that was on its way. 1 if it had not ended."""
        if not self.end(UCXCanceledError("While waiting for tag_recv_multi the endpoint was closed")):
            return 0
        self.line.turn()
        self.line.give_up()
        return 1

    def give_back(self) -> None:
        """Who waited for it was interrupted before it went on."""
        if self.completed and self.error is None:
            self.line.give_back(self.buffers)


class Receives:
    """Those of an endpoint, which end with it. They are held by their lines."""

    def __init__(self) -> None:
        self._outcomes: weakref.WeakSet[AddressedOutcome] = weakref.WeakSet()

    def add(self, outcome: AddressedOutcome) -> None:
        """It is one of them."""
        self._outcomes.add(outcome)

    def cancel_request(self) -> int:
        """The endpoint is closed, or the peer gone; how many had not ended."""
        return sum(outcome.cancel_request() for outcome in list(self._outcomes))


def receive(
    worker: Any, receives: Receives, lines: dict[tuple[int, int], Line], tag: int, mask: int
) -> AddressedOutcome:
    """Receive the next message with a tag, of any peer by worker address."""
    line = lines.get((tag, mask))
    if line is None:
        for key in [key for key, other in lines.items() if other.idle]:
            lines.pop(key, None)
        line = lines[tag, mask] = Line(worker, tag, mask)
    outcome = AddressedOutcome(line)
    receives.add(outcome)
    line.receive(outcome)
    return outcome
