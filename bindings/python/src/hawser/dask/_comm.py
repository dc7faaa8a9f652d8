"""A connection of Dask: each message is one multi-buffer message of Hawser."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

from distributed.comm.core import Comm, CommClosedError
from distributed.comm.utils import from_frames, to_frames
from distributed.utils import offload

import hawser

from . import _device, _device_objects, _direct
from ._config import close_timeout, write_ahead
from ._pool import take

log = logging.getLogger("hawser.dask")

_device_objects.register()

# Frames travel together, as one coalesced message, up to so many bytes.
COALESCE = 32768
# Objects are never cut: a frame of any size is one buffer at both ends.
NO_SPLIT = 1 << 62
# A list is a batch of messages that nobody answers: the arguments of a task, say, which its program may change as soon
# as submit() has returned. Over tcp the kernel has about so many bytes by then.
BATCH_COPIED = 4 << 20
# For what is on its way on a connection when Python ends. An open client has 3 s then, and closes its connections one
# after the other.
ENDING_SECONDS = 1.0


def _finalize(endpoint: hawser.Endpoint, lender: _direct.Lender | None, description: str) -> None:
    if endpoint.connected:
        log.warning("closing a connection that nobody closed: %s", description)
    _abort(endpoint, lender)


def _abort(endpoint: hawser.Endpoint, lender: _direct.Lender | None) -> None:
    if lender is not None:
        lender.revoke()
    endpoint.abort()


def _leave(endpoint: hawser.Endpoint, lender: _direct.Lender | None) -> None:
    """Close a connection whose comm let it go, with nobody waiting for that."""
    if lender:
        lender.linger(close_timeout())
    else:
        if lender is not None:
            lender.revoke()
        endpoint.close()


class HawserComm(Comm):
    """A connection of Dask. One reader and one writer at a time, on the loop that made it;
    abort() and closed() on any thread. Raises CommClosedError if the peer has left already."""

    def __init__(self, endpoint: hawser.Endpoint, prefix: str, deserialize: bool = True) -> None:
        info = endpoint.info()
        if not (info["local_address"] and info["peer_address"]):
            raise CommClosedError("the peer left as soon as it was connected")
        # Dask's connect() reads these two, not the properties.
        self._local_addr = prefix + info["local_address"]
        self._peer_addr = prefix + info["peer_address"]
        self._endpoint: hawser.Endpoint | None = endpoint
        self._ahead = write_ahead()
        self._unsent = 0  # bytes of messages that are not at the peer yet
        self._awaited = 0  # writes that have not returned, since they wait for the peer
        self._lender = _direct.Lender(endpoint) if _direct.usable(info["lanes"]) else None
        self._peer_reads = False  # the memory of this process
        self._source: _direct.Where | None = None  # the peer's memory, if this process can read it
        self._tried = self._lender is None
        self._has_device = False  # frames may be in memory of a GPU, as far as this end goes
        super().__init__(deserialize=deserialize)
        self._finalizer = weakref.finalize(self, _finalize, endpoint, self._lender, repr(self))
        self._finalizer.atexit = False

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    @property
    def transport(self) -> str:
        """UCX's names of what the data travels on, as "sysv/memory"; empty when it is closed."""
        endpoint = self._endpoint
        return "" if endpoint is None or not endpoint.connected else str(endpoint.info()["lanes"])

    @property
    def extra_info(self) -> dict[str, Any]:
        return {}

    def handshake_info(self) -> dict[str, Any]:
        info = dict(super().handshake_info())
        if self._lender is not None:
            info["hawser-memory"] = self._lender.where()
        self._has_device = self._endpoint is not None and _device.usable(self._endpoint.worker.context)
        info["hawser-device"] = self._has_device
        return info

    def _failed(self, error: hawser.HawserError | OSError) -> NoReturn:
        description = repr(self)
        self._cut()
        raise CommClosedError(f"in {description}: {type(error).__name__}: {error}") from error

    async def read(self, deserializers: Any = None) -> Any:
        """The next message. Cancelling it aborts the connection."""
        endpoint = self._endpoint
        if endpoint is None:
            raise CommClosedError(f"in {self!r}: read of a closed connection")
        try:
            receiving = endpoint.recv_multi(0, 0)  # any tag
            segments = await receiving
            # Each buffer has memory of its own, so that each can be freed alone.
            if self._has_device:
                frames = _device.memory_for(segments.lengths, segments.kinds, take)
            else:
                frames = [take(n) for n in segments.lengths]
            await segments.fetch(frames)
            self._peer_reads |= bool(receiving.tag & _direct.CAN_READ)
            if receiving.tag & _direct.LENDS:
                await self._borrow(endpoint, frames)
        except (hawser.HawserError, OSError) as e:
            self._failed(e)
        except BaseException:
            self._cut()
            raise
        try:
            return await from_frames(
                frames,
                deserialize=self.deserialize,
                deserializers=deserializers,
                allow_offload=self.allow_offload,
            )
        except EOFError as e:
            self._cut()
            raise CommClosedError(f"in {self!r}: a message that ends too early") from e

    async def _borrow(self, endpoint: hawser.Endpoint, frames: list[Any]) -> None:
        """Get the frames that the peer lends."""
        if self._source is None:
            raise OSError("the peer lends memory that was not asked for")
        borrowed = _direct.Borrowed(self._source, frames, take)
        could = await offload(borrowed.read) if borrowed.total > _direct.INLINE else borrowed.read()
        if not could:
            endpoint.send_am(b"", id=_direct.UNREADABLE, header=borrowed.header, eager=True)
            await borrowed.fetch(await endpoint.recv_multi(_direct.SENT, _direct.SENT))
            return
        with contextlib.suppress(hawser.HawserError):  # the peer needs it no more
            endpoint.send_am(b"", id=_direct.RETURNED, header=borrowed.header, eager=True)

    def _post(self, endpoint: hawser.Endpoint, frames: Any) -> Any:
        """Hand a message to UCX. Gives what ends when its frames are not in use any more."""
        if not self._tried and self.remote_info:
            self._tried = True
            self._source = _direct.reachable(self.remote_info.get("hawser-memory"))
        tag = 0 if self._source is None else _direct.CAN_READ
        if self._lender is None or not self._peer_reads or (lent := self._lender.lend(frames)) is None:
            return endpoint.send_multi(frames, tag, None, COALESCE)
        frames, reading = lent
        sending = endpoint.send_multi(frames, tag | _direct.LENDS, None, COALESCE)
        sending.add_done_callback(functools.partial(self._lender.posted, reading))
        return reading

    async def write(self, msg: Any, serializers: Any = None, on_error: str | None = "message") -> int:
        """Send a message; gives its bytes. It may return before the peer reads, as over tcp, while
        what is on its way is not more than `distributed.comm.ucx.write-ahead`: what is written must
        not be changed, but for batches of up to 4 MiB. Cancelling it aborts the connection."""
        if self._endpoint is None:
            raise CommClosedError(f"in {self!r}: write to a closed connection")
        if serializers is None and self._has_device and self.remote_info.get("hawser-device"):
            serializers = _device.SERIALIZERS
        frames = await to_frames(
            msg,
            allow_offload=self.allow_offload,
            serializers=serializers,
            on_error=on_error,
            context={
                "sender": self.local_info,
                "recipient": self.remote_info,
                **self.handshake_options,
            },
            frame_split_size=NO_SPLIT,
        )
        endpoint = self._endpoint
        if endpoint is None:
            raise CommClosedError(f"in {self!r}: closed while the message was serialized")
        n = sum(map(_device.frame_bytes, frames))
        if isinstance(msg, list) and n <= BATCH_COPIED:
            frames = [bytes(f) if isinstance(f, memoryview) else f for f in frames]
        try:
            if self._has_device and any(map(_device.is_device, frames)):
                _device.synchronize()
            sending = self._post(endpoint, frames)
            if not sending.done():
                self._unsent += n
                sending.add_done_callback(functools.partial(self._sent, n))
            if sending.done() or self._unsent > self._ahead:
                self._awaited += 1
                try:
                    await sending
                finally:
                    self._awaited -= 1
        except hawser.HawserError as e:
            self._failed(e)
        except BaseException:
            self._cut()
            raise
        return n

    def _sent(self, n: int, sending: Any) -> None:
        """A message for which write() did not wait has ended."""
        self._unsent -= n
        if not sending.cancelled() and sending.exception() is not None and not self.closed():
            # A message is missing, so nothing after it may arrive.
            log.debug("a message could not be sent in %r", self, exc_info=sending.exception())
            self._cut()

    async def close(self) -> None:
        """Send what is left, say goodbye and close. It waits for what is left only, as over tcp, bounded by
        `distributed.comm.ucx.close-timeout`; it goes on without the caller when it is cancelled and when Python ends.

        The peer's answer to the goodbye is not waited for: a worker of Dask that is told twice to end, by its scheduler
        and by a signal, cancels its own closing, and never ends if it waits here then."""
        waits = bool(self._lender or self._unsent)
        seconds, at_the_end = self._patience()
        endpoint, lender = self._let_go()
        if endpoint is None:
            return
        if not waits:
            _leave(endpoint, lender)
            return
        try:
            async with asyncio.timeout(seconds):
                if lender is not None:
                    if lender:
                        await lender.idle()
                    lender.revoke()
                await endpoint.close()
        except hawser.HawserError:
            log.debug("closing %r", self, exc_info=True)
        except TimeoutError:
            at_the_end(endpoint, lender)
        except BaseException:
            _leave(endpoint, lender)
            raise

    def _patience(self) -> tuple[float, Callable[[hawser.Endpoint, _direct.Lender | None], None]]:
        """For how many seconds close() waits for what is left, and what is done then."""
        if not threading.main_thread().is_alive():  # what is on its way is waited for as the workers are closed
            return ENDING_SECONDS, _leave
        return close_timeout(), _abort

    def abort(self) -> None:
        """Close without waiting. What write() took still goes to the peer, as the kernel sends on what tcp took; a
        message whose write() waits was not taken."""
        if self.closed() or self._awaited:
            self._cut()
            return
        endpoint, lender = self._let_go()
        if endpoint is not None:
            _leave(endpoint, lender)

    def _cut(self) -> None:
        """Close at once: what is on its way is lost, and the peer sees a failure."""
        endpoint, lender = self._let_go()
        if endpoint is not None:
            _abort(endpoint, lender)

    def _let_go(self) -> tuple[hawser.Endpoint | None, _direct.Lender | None]:
        """It is closed from here on; who is given these ends them."""
        found = self._endpoint, self._lender
        if self._endpoint is not None and self._unsent:
            _direct.parting[id(self._endpoint)] = self._endpoint
        self._endpoint = self._lender = None
        self._finalizer.detach()
        return found

    def closed(self) -> bool:
        """True once it was closed here, or the peer left or died."""
        endpoint = self._endpoint
        return endpoint is None or not endpoint.connected
