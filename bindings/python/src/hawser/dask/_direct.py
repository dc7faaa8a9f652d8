"""Large buffers for a peer on this machine: it reads them where they are, by the kernel's process_vm_readv().

UCX over shared memory copies twice, through a window for which both processes must run by turns. One copy by the reader
takes half of that, also where the CPUs are busy. Who may read whose memory is the kernel's decision, so each end tries
it with a few bytes and says what came of it; until then, and where it is refused, UCX carries everything. Some memory
of a process that can be read cannot, such as a device's: the reader asks for that, and nothing is lent to it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import secrets
import struct
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import hawser
from hawser import _core
from hawser._errors import ErrorCode

from ._config import direct_reads
from ._device import is_device

# Buffers of fewer bytes travel with the message.
SMALLEST = 1 << 12
# Nothing is lent of a message with fewer bytes in such buffers.
LEAST = 1 << 15
# Reading so many bytes takes less time than having a thread do it.
INLINE = 16 << 20
# Bits of a message's tag: its writer can read the reader's memory; the last buffer lists others that are to be read;
# it is these others, which could not be.
CAN_READ, LENDS, SENT = 1, 2, 4
# The active messages that say that those of a message were read, or could not be.
RETURNED, UNREADABLE = 1, 2

_LIST = struct.Struct("<Q")  # number of the message; then for each buffer
_PLACE = struct.Struct("<QQQ")  # its index, address and length
# UCX's transports within a machine. Over others the user may want the bytes to be seen.
_LOCAL = {"sysv", "posix", "xpmem", "cma", "knem", "self"}

Where = tuple[int, int, int]  # process, address of a mark, what stands there


def _system_call(library: type[ctypes.CDLL]) -> Callable[..., int] | None:
    function = getattr(library(None, use_errno=True), "process_vm_readv", None)
    if function is not None:
        vectors = [ctypes.c_void_p, ctypes.c_ulong]
        function.argtypes = [ctypes.c_int, *vectors, *vectors, ctypes.c_ulong]
        function.restype = ctypes.c_ssize_t
    return function


_readv = _system_call(ctypes.CDLL)
# The same with the GIL held: a thread that computes keeps it for 5 ms once it was let go.
_readv_held = _system_call(ctypes.PyDLL)
# Up to so many bytes at once.
_HELD = 4 << 20
# The kernel takes so many pieces at once.
_PIECES = 1024

Piece = tuple[int, int, int]  # address at the peer, address here, length


def _vector(pieces: Sequence[Piece], side: int) -> bytes:
    """An array of struct iovec: of the peer's addresses (0) or of those here (1)."""
    return struct.pack(f"@{2 * len(pieces)}N", *(number for piece in pieces for number in (piece[side], piece[2])))


def _read(process: int, pieces: Sequence[Piece]) -> None:
    """Raises OSError."""
    todo = [piece for piece in pieces if piece[2] != 0]
    left = sum(length for _, _, length in todo)
    readv = _readv_held if left <= _HELD else _readv
    assert readv is not None
    while left:
        some = todo[:_PIECES]
        n = readv(process, _vector(some, 1), len(some), _vector(some, 0), len(some), 0)
        if n <= 0:
            error = ctypes.get_errno()
            raise OSError(error, f"reading the memory of process {process}: {os.strerror(error)}")
        if left := left - n:
            todo = _rest(todo, n)


def _rest(pieces: list[Piece], done: int) -> list[Piece]:
    """What is left after so many bytes: the kernel may stop anywhere."""
    for i, (there, here, length) in enumerate(pieces):
        if done < length:
            return [(there + done, here + done, length - done), *pieces[i + 1 :]]
        done -= length
    return []


def _marked(where: Where) -> bool:
    """Whether the mark stands there still."""
    process, address, mark = where
    found = ctypes.c_uint64()
    _read(process, [(address, ctypes.addressof(found), 8)])
    return found.value == mark


def usable(lanes: str) -> bool:
    """Whether the settings let it be tried on a connection."""
    names = {lane.split("/")[0] for lane in lanes.split("+")}
    return _readv is not None and bool(names & _LOCAL) and direct_reads()


def reachable(told: Any) -> Where | None:
    """What a peer said about itself, if it is right: this process can read its memory."""
    with contextlib.suppress(TypeError, ValueError, OverflowError, OSError, ctypes.ArgumentError):
        process, address, mark = map(int, told)
        if mark and _marked((process, address, mark)):
            return process, address, mark
    return None


class _Marks:
    """Numbers that peers look at. Their memory is never given back, as a peer may look at any time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[ctypes.c_uint64] = []
        self._blocks: list[Any] = []

    def take(self) -> ctypes.c_uint64:
        with self._lock:
            if not self._free:
                self._blocks.append((ctypes.c_uint64 * 64)())
                size, start = ctypes.sizeof(ctypes.c_uint64), ctypes.addressof(self._blocks[-1])
                self._free += [ctypes.c_uint64.from_address(start + i * size) for i in range(64)]
            mark = self._free.pop()
            mark.value = secrets.randbits(64) | 1
            return mark

    def give(self, mark: ctypes.c_uint64) -> None:
        # Not locked: finalizers come here, too.
        mark.value = 0
        self._free.append(mark)


_marks = _Marks()
# By their ids: other threads may add to it while one looks through it, which a WeakSet does not stand.
_lenders: weakref.WeakValueDictionary[int, Lender] = weakref.WeakValueDictionary()
# Those of connections that are closed here, but whose peers still read.
_lingering: set[Lender] = set()
# Those that had something to send when their comms let them go.
parting: weakref.WeakValueDictionary[int, hawser.Endpoint] = weakref.WeakValueDictionary()


class Lender:
    """The buffers that a connection's peer has not read yet."""

    def __init__(self, endpoint: hawser.Endpoint) -> None:
        self._endpoint = endpoint
        self._mark: ctypes.c_uint64 | None = _marks.take()
        self._sent = 0
        self._lends = True
        self._lent: dict[int, tuple[Any, _core.Operation[Any]]] = {}
        self._when_idle: Callable[[], object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        _lenders[id(self)] = self
        endpoint.owner = self
        endpoint.on_disconnect = self._lost

    def __bool__(self) -> bool:
        """Whether something is lent."""
        return bool(self._lent)

    def of(self, worker: hawser.Worker) -> bool:
        return self._endpoint.worker is worker

    def where(self) -> Where | None:
        mark = self._mark
        return None if mark is None else (os.getpid(), ctypes.addressof(mark), mark.value)

    def lend(self, frames: Sequence[Any]) -> tuple[list[Any], _core.Operation[Any]] | None:
        """The frames of a message in which a list stands for the large ones, and what ends when these were read.
        None: none are lent."""
        if not self._lends:
            return None
        stay, places, kept, total = [], [], [], 0
        for i, frame in enumerate(frames):
            # Memory of a GPU is UCX's affair.
            if not is_device(frame) and _length(frame) >= SMALLEST and (memory := _core.memory(frame))[2] == 0:
                places.append(_PLACE.pack(i, *memory[:2]))
                kept.append(frame)
                total += memory[1]
            else:
                stay.append(frame)
        if total < LEAST or self._mark is None:
            return None
        self._sent += 1
        self._loop = asyncio.get_running_loop()
        reading = _core.operation(self._endpoint.worker)
        self._lent[self._sent] = kept, reading
        return [*stay, _LIST.pack(self._sent) + b"".join(places)], reading

    def posted(self, reading: _core.Operation[Any], sending: Any) -> None:
        """The message that lists what is lent has left, or could not be sent."""
        if sending.cancelled() or (error := sending.exception()) is None:
            return
        for number, (_, other) in list(self._lent.items()):
            if other is reading:
                self.returned(number, error)

    def unreadable(self, number: int) -> None:
        """The peer could not read them: send them."""
        self._lends = False
        frames, _ = self._lent.get(number, (None, None))
        if frames is None:
            return
        try:
            sending = self._endpoint.send_multi(frames, SENT)
        except hawser.HawserError as e:
            self.returned(number, e)
        else:
            sending._on_end(lambda sending: self.returned(number, sending.exception()))

    def returned(self, number: int, error: BaseException | None = None) -> None:
        """The peer has them. error: it will not get them."""
        _, reading = self._lent.pop(number, (None, None))
        if reading is not None and error is None:
            reading._end()
        elif reading is not None:
            reading._end(getattr(error, "code", ErrorCode.CANCELED), None, str(error))
        if not self._lent and self._when_idle is not None:
            done, self._when_idle = self._when_idle, None
            done()

    def revoke(self, why: tuple[int, str] = (ErrorCode.CANCELED, "the connection was closed")) -> None:
        """Whoever still reads sees that it has read too late."""
        mark, self._mark = self._mark, None
        if mark is not None:
            _marks.give(mark)
        self._endpoint.owner = self._endpoint.on_disconnect = None  # a cycle else
        while self._lent:
            try:
                _, (_, reading) = self._lent.popitem()
            except KeyError:
                break  # another thread was faster
            reading._end(why[0], None, why[1])

    def _lost(self, endpoint: hawser.Endpoint) -> None:
        self.revoke(endpoint._error or (ErrorCode.CONNECTION_RESET, "the peer is gone"))
        if self._when_idle is not None:
            self.returned(0)

    def idle(self) -> _core.Operation[Any]:
        """What ends when nothing is lent any more."""
        waiting = _core.operation(self._endpoint.worker)
        self._when_idle = waiting._end
        if not self._lent:
            self.returned(0)
        return waiting

    def linger(self, seconds: float) -> None:
        """Close the connection when the peer has read everything; after so many seconds in any case."""
        loop = self._loop
        assert loop is not None  # something was lent
        _lingering.add(self)
        self._when_idle = self._leave
        try:
            loop.call_soon_threadsafe(loop.call_later, seconds, self._leave)
        except RuntimeError:  # the loop is closed
            self._leave()
        else:
            if not self._lent:
                self.returned(0)

    def _leave(self) -> None:
        if self in _lingering:
            _lingering.discard(self)
            self.revoke()
            self._endpoint.close()


def _on_its_way(worker: hawser.Worker) -> bool:
    """Whether closed comms of the worker have left something that peers are still to get."""
    endpoints = [ref() for ref in parting.valuerefs()]
    return any(e is not None and e.worker is worker and e._state != "closed" and e._error is None for e in endpoints)


def settle(worker: hawser.Worker, seconds: float) -> None:
    """Before a worker is closed whose loop runs no more: have the peers get what closed comms have lent or not sent,
    and take back all the rest."""
    end = time.monotonic() + seconds
    while _on_its_way(worker) and (left := end - time.monotonic()) > 0:
        worker._wait(min(left, 0.1))
    for lender in [ref() for ref in _lenders.valuerefs()]:
        if lender is not None and lender.of(worker):
            lender._leave()
            lender.revoke()


def _length(frame: Any) -> int:
    return frame.nbytes if isinstance(frame, memoryview) else len(frame)


def handle(worker: hawser.Worker) -> None:
    """Have what peers say of what is lent to them reach the lenders."""
    for message, what in (RETURNED, Lender.returned), (UNREADABLE, Lender.unreadable):
        worker.am_handler(message, functools.partial(_told, what))


def _told(what: Callable[[Lender, int], None], endpoint: Any, header: bytes, data: Any) -> None:
    lender = getattr(endpoint, "owner", None)
    if isinstance(lender, Lender) and len(header) == _LIST.size:
        what(lender, *_LIST.unpack(header))


class Borrowed:
    """The large buffers of a message that are to be read.

    frames: those that came; where the others belong among them, memory of take(bytes) is put.
    """

    def __init__(self, source: Where, frames: list[Any], take: Callable[[int], memoryview]) -> None:
        listed = bytes(frames.pop())
        self._source = source
        self.header = listed[: _LIST.size]
        self._jobs: list[tuple[int, memoryview]] = []
        self.total = 0
        try:
            for index, address, length in _PLACE.iter_unpack(listed[_LIST.size :]):
                buffer = take(length)
                frames.insert(index, buffer)
                self._jobs.append((address, buffer))
                self.total += length
        except struct.error as e:
            raise OSError(f"the peer lends memory in an unknown way: {e}") from e

    def read(self) -> bool:
        """Any thread. False: they cannot be read. Raises OSError where the owner is gone or has taken it back."""
        could = True
        try:
            _read(self._source[0], [(there, _core.pointer(buffer), buffer.nbytes) for there, buffer in self._jobs])
        except OSError:
            could = False
        try:
            marked = _marked(self._source)
        except PermissionError:
            return False  # any more
        if not marked:
            raise OSError("the peer has closed the connection")
        return could

    async def fetch(self, segments: Any) -> None:
        """Take them from the message in which the owner has sent them."""
        buffers = [buffer for _, buffer in self._jobs]
        if not segments.pending or list(segments.lengths) != [buffer.nbytes for buffer in buffers]:
            raise OSError("the peer sends other memory than it lent")
        await segments.fetch(buffers)
