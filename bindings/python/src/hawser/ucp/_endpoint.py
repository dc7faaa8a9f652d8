"""Endpoints: connections to peers."""

from __future__ import annotations

import array
import asyncio
import contextlib
import logging
import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from hawser import _core
from hawser._check import function, integer, one

from . import comm
from ._handshake import CtrlMsg
from ._libs import ucx_api
from ._libs._endpoint import AM_ID
from ._libs._request import tag_number
from ._libs.arr import Array
from ._libs.exceptions import LOST, HawserError, UCXPeerLost, check_short, too_short, translate, translate_receive
from .exceptions import UCXBaseException, UCXCanceled, UCXCloseError, UCXError
from .utils import hash64bits

if TYPE_CHECKING:
    from ._application import ApplicationContext


logger = logging.getLogger("ucx")
_LET_SEND_SECONDS = 1.0  # how long what is being sent goes on after close()
_KEEP = 4096  # user tags of an endpoint whose hash is remembered


@lru_cache(_KEEP)
def _portable_hash(tag: Any) -> int:
    """hash(tag), but the same in every process for strings too."""
    if isinstance(tag, (str, bytes)):
        return hash64bits("tag", tag)
    return hash(tag)


def _is_array(buffer: Any) -> Any:
    return buffer.source if isinstance(buffer, Array) else buffer


@_core.own
class Endpoint(_core.UcpEndpoint):
    """A connection to a peer. Made by create_endpoint(), create_endpoint_from_worker_address() and listeners.

    send() and recv() are of C: they give hawser's awaitables for the usual messages, else the coroutines below.
    """

    # Whether a message that is shorter than the buffer is an error.
    _exact = True
    # What fails a message that was posted.
    _failures: type[Exception] = UCXBaseException

    def __init__(
        self, endpoint: ucx_api.UCXEndpoint, ctx: ApplicationContext, tags: dict[str, int] | None = None
    ) -> None:
        self._ep: ucx_api.UCXEndpoint | None = one("endpoint", endpoint, ucx_api.UCXEndpoint)
        self._uid = endpoint.handle
        self._hawser = endpoint._endpoint
        self._ctx: ApplicationContext | None = ctx
        self._tags = tags
        self._msg_send = tags["msg_send"] if tags else 0
        self._msg_recv = tags["msg_recv"] if tags else 0
        self._hash: Callable[[Any], int] = hash if endpoint.of_ucxpy else _portable_hash
        self._hashes: dict[Any, tuple[int, int]] = {}
        self._sizes: dict[int, int] = {}  # of objects that recv_obj() has begun to receive, by their tags on the wire
        self._shutting_down_peer = False
        self._peer_closes = False
        self._closes_soon = False
        self._aborted = False
        self._told = False
        self._sending: set[_core.Operation[Any]] = set()  # by the coroutines below
        endpoint._sends = partial(_sends, weakref.ref(self))
        if tags and not endpoint.of_ucxpy:
            self._bind(self._hawser, self._msg_send, self._msg_recv, self._exact)

    def _log_made(self, by: str) -> None:
        if logger.isEnabledFor(logging.DEBUG):
            assert self._ep is not None
            tags = "".join(f", {name.replace('_', '-tag-')}: {tag:#x}" for name, tag in (self._tags or {}).items())
            logger.debug("%s: %s, error handling: %s%s", by, hex(self._uid), self._ep._handling, tags)

    @property
    def uid(self) -> int:
        """A number that names it, also after it is closed."""
        return self._uid

    def _is_closed(self) -> bool:
        ep = self._ep
        return ep is None or not ep.initialized or not ep.is_alive()

    def closed(self) -> bool:
        """Whether it is closed here, or the peer has closed it or is gone."""
        return self._closes_soon or self._is_closed()

    def abort(self) -> None:
        """Close at once, here: what is pending ends with UCXCanceled. What was sent before still arrives."""
        self._leave(0)

    def _leave(self, patience: float) -> None:
        self._aborted = True
        self._unbind()
        ep, self._ep = self._ep, None
        if ep is not None:
            logger.debug("Endpoint.abort(): %s", hex(self._uid))
            ep.close_soon(patience)
        self._ctx = None

    async def close(self) -> None:
        """Tell the peer how much was sent, so that it closes once it has received that, and close.

        Waits, as in UCX-Py, until there is room for that message: a peer that makes no progress holds it up where many
        messages wait (asyncio.wait_for() bounds it). What is still being sent goes on for a second after that, then it
        is to end with UCXCanceled, at the latest after five: UCX does not let go of a large message that it has begun.
        """
        if self._is_closed():
            self.abort()
            return
        try:
            if self._shutting_down_peer or self._tags is None:
                return
            self._shutting_down_peer = True
            handles_errors = self._ep is not None and self._ep._handling
            msg = CtrlMsg.serialize(opcode=1, close_after_n_recv=self._send_count)
            log = (
                f"[Send shutdown] ep: {hex(self._uid)}, tag: {hex(self._tags['ctrl_send'])}, "
                f"close_after_n_recv: {self._send_count}"
            )
            logger.debug(log)
            try:
                await self._sent(self._hawser.send(msg, self._tags["ctrl_send"]))
            except HawserError as e:
                error = UCXError(f"<{log}>: {e.text}")
                # A peer that is gone is no failure to whoever handles errors: closed() tells, perhaps only later.
                quiet = handles_errors and e.code in LOST
                say = logger.debug if quiet else logging.error
                say("UCX failed closing worker %s: %r", hex(self._uid), error)
        finally:
            # A peer in this loop takes what came before the end; over TCP it comes in the second turn.
            for _ in range(2):
                if self._ctx is None or self._is_closed():
                    break
                self._ctx.worker.progress()
                await asyncio.sleep(0)
            self._leave(_LET_SEND_SECONDS)

    # ---- Tags ----

    def _hashed(self, tag: Any) -> tuple[int, int]:
        try:
            found = self._hashes.get(tag)
        except TypeError as e:
            raise TypeError(f"tag: {e}") from None
        if found is None:
            if len(self._hashes) >= _KEEP:
                self._hashes.clear()
            number = self._hash(tag)
            found = self._hashes[tag] = (hash64bits(self._msg_send, number), hash64bits(self._msg_recv, number))
        return found

    def _tag(self, tag: Any, force_tag: bool, receive: int) -> int:
        """The tag on the wire; receive: 0 to send, 1 to receive."""
        if force_tag and tag is not None:
            return tag_number(tag)
        if self._tags is None:
            raise ValueError("This endpoint has no tags of its own: give an int as tag, and force_tag=True")
        if tag is None:
            return self._msg_recv if receive else self._msg_send
        return self._hashed(tag)[receive]

    # ---- Failures ----

    def _describe(self, what: str, count: int, tag: int, buffer: Any) -> str:
        try:
            nbytes: Any = _core.memory(buffer)[1]
        except Exception:
            nbytes = "?"
        return f"[{what} #{count:03d}] ep: {hex(self._uid)}, tag: {hex(tag)}, nbytes: {nbytes}, type: {type(buffer)}"

    def _check_open(self, receiving: str = "") -> Any:
        """Raise what ended it. What ends it between two calls cancels the next receive, as in UCX-Py,
        which learns of it only while that waits."""
        ep = self._ep
        if receiving and not self._told and (self._peer_closes if ep is None else not ep.is_alive()):
            self._told = True
            raise UCXCanceled(receiving)
        if ep is None:
            raise UCXCloseError("Endpoint closed")
        if self._hawser._error is not None or self._hawser._state != "open":
            ep.raise_on_error()
            if self._is_closed():
                raise UCXCloseError("Endpoint closed")
        return ep

    def _look(self) -> None:
        """Nobody introduced us to a peer by address: see whether it is still there."""
        if self._ep is not None and self._tags is None:
            self._ep.worker.progress()

    @staticmethod
    def _bad_memory(buffer: Any, writable: bool) -> Exception:
        """Why a buffer was refused, in UCX-Py's words."""
        array = Array(buffer)
        if not array.contiguous:
            return ValueError("Array must be C or F contiguous")
        if writable and array.readonly:
            return ValueError("writing to readonly buffer!")
        return ValueError("the buffer cannot be used")

    # ---- Tagged messages ----

    async def _send(self, buffer: Any, tag: Any, force_tag: bool) -> bool | None:
        """send() of what is not usual."""
        return await self._ended(*self._post(buffer, tag, force_tag))

    def _post(self, buffer: Any, tag: Any, force_tag: bool) -> tuple[_core.Operation[Any] | None, int, Any]:
        """Begin to send. Gives what _ended() is told; None: the peer has closed."""
        hawser = self._hawser
        if hawser._error is not None or self._ep is None or self._tags is None:
            self._look()
            self._check_open()
        wire = self._msg_send if tag is None and not force_tag and self._tags else self._tag(tag, force_tag, 0)
        if type(buffer) is Array:
            buffer = buffer.source
        try:
            operation = hawser.send(buffer, wire)
        except HawserError as e:
            self._send_failed(e, self._send_count, wire, buffer)
            return None, wire, buffer
        except BufferError as e:
            raise self._bad_memory(buffer, False) from e
        self._send_count += 1  # of what was refused the peer would wait for one message too many
        return operation, wire, buffer

    async def _ended(self, operation: _core.Operation[Any] | None, wire: int, buffer: Any) -> bool | None:
        """Await what was posted."""
        if operation is None:
            return None
        try:
            await self._sent(operation)
        except HawserError as e:
            self._send_failed(e, self._send_count - 1, wire, buffer)
            return None
        return True

    async def _sent(self, operation: _core.Operation[Any]) -> None:
        """Await a send that an abort is to end."""
        self._sending.add(operation)
        try:
            await operation
        finally:
            self._sending.discard(operation)

    def _send_failed(self, e: HawserError, number: int, wire: int, buffer: Any) -> None:
        error = self._send_failure(e, self._describe("Send", number, wire, buffer))
        if error is not None:
            raise error from e

    def _send_failure(self, e: HawserError, name: str) -> Exception | None:
        """What a send raises; None: nothing, it returns None, as where the peer has closed."""
        error: Exception = translate(e, name)
        if self._tags is None and e.code in LOST and not self._aborted:
            error = UCXPeerLost(f"<{name}>")
        return error if not isinstance(error, UCXCanceled) or self._aborted else None

    def _failure(
        self, error: HawserError | None, receives: bool, buffer: Any, number: int, got: int, expected: int
    ) -> Exception | None:
        """What an awaitable of send() or recv() raises. error: None for a message that is too short."""
        if not receives:
            assert error is not None
            return self._send_failure(error, self._describe("Send", number, self._msg_send, buffer))
        name = self._describe("Recv", number, self._msg_recv, buffer)
        return too_short(name, got, expected) if error is None else self._receive_failure(error, name)

    def _receive_failure(self, error: HawserError, name: str) -> Exception:
        """What a receive raises that waited. One that the end of the connection cancelled has told of that end."""
        result = translate_receive(error, name)
        self._told = self._told or isinstance(result, UCXCanceled)
        return result

    async def _recv(self, buffer: Any, tag: Any, force_tag: bool) -> bool:
        """recv() of what is not usual."""
        hawser = self._hawser
        wire = self._msg_recv if tag is None and not force_tag and self._tags else self._tag(tag, force_tag, 1)
        if type(buffer) is Array:
            buffer = buffer.source
        elif buffer is None:  # which has hawser give the memory
            raise TypeError("a buffer to receive into is needed, not None")
        if self._ep is None or (hawser._error is not None and hawser.probe(wire) is None):
            self._check_open(f"<{self._describe('Recv', self._recv_count, wire, buffer)}>: Request canceled")
        count = self._recv_count
        self._recv_count += 1
        try:
            if self._ep is not None and self._ep.of_ucxpy and not force_tag:
                got = await self._cancelled_by_close(hawser._recv(buffer, wire))
            elif force_tag or self._tags is None:
                got = await self._recv_of_worker(buffer, wire)
            else:
                got = await hawser._recv(buffer, wire)
        except HawserError as e:
            raise self._receive_failure(e, self._describe("Recv", count, wire, buffer)) from e
        except BufferError as e:
            raise self._bad_memory(buffer, True) from e
        if self._exact and got != (len(buffer) if type(buffer) in (bytearray, bytes) else _core.memory(buffer)[1]):
            name = self._describe("Recv", count, wire, buffer)
            check_short(name, got, _core.memory(buffer)[1])
        self._received()
        return True

    async def _recv_of_worker(self, buffer: Any, wire: int) -> int:
        """A message whose tag says everything may come from another endpoint of the peer."""
        assert self._ep is not None
        return await self._cancelled_by_close(self._ep.worker._worker.recv(buffer, wire))

    async def _cancelled_by_close(self, operation: Any) -> int:
        """What is received, unless this endpoint is closed before: nothing else ends the operation then, or only
        when the peer, which says no goodbye, is found to be gone."""
        ep = self._ep
        assert ep is not None

        class Pending:
            @staticmethod
            def cancel_request() -> int:
                if operation.done():
                    return 0
                with contextlib.suppress(HawserError):
                    _core.cancel(operation.id)
                return 1

        pending: Any = Pending()
        ep._inflight.add(pending)
        try:
            return int(await operation)
        finally:
            ep._inflight.discard(pending)

    # ---- Active messages ----

    async def am_send(self, buffer: Any) -> bool | None:
        """Send a buffer that the receiver allocates."""
        if self._tags is None:
            self._look()
        self._check_open()
        buffer = _is_array(buffer)
        header = b"\1\0\0\0" if hasattr(buffer, "__cuda_array_interface__") else b"\0\0\0\0"
        number = self._send_count
        try:
            operation = self._hawser.send_am(buffer, AM_ID, header)
            self._send_count += 1
            await self._sent(operation)
        except HawserError as e:
            self._send_failed(e, number, 0, buffer)
            return None
        except BufferError as e:
            raise self._bad_memory(buffer, False) from e
        return True

    async def am_recv(self) -> Any:
        """The next active message, in memory of the registered allocator."""
        if self._ep is None or not self._ep.am_probe():
            self._check_open("While waiting for am_recv the endpoint was closed")
        self._recv_count += 1
        ep: Any = self._ep
        receiving = comm.am_recv(ep)
        try:
            received = await receiving
        except UCXCanceled:
            self._told = True
            raise
        except asyncio.CancelledError:
            if receiving.done() and not receiving.cancelled() and receiving.exception() is None:
                ep._am_untaken(receiving.result())
            raise
        self._received()
        return received

    # ---- Objects ----

    async def send_obj(self, obj: Any, tag: Any = None) -> None:
        """Send a buffer whose size the receiver does not know."""
        try:
            nbytes = array.array("Q", [_core.memory(_is_array(obj))[1]])
        except BufferError as e:
            raise self._bad_memory(obj, False) from e
        # Both are posted before either is waited for: nothing that others send meanwhile comes between them.
        size, data = self._post(nbytes, tag, False), self._post(obj, tag, False)
        if data[0] is not None:
            self._sending.add(data[0])
        try:
            await self._ended(*size)
            await self._ended(*data)
        except asyncio.CancelledError:
            if data[0] is not None:
                data[0].cancel()
            raise
        finally:
            self._sending.discard(data[0])

    async def recv_obj(self, tag: Any = None, allocator: Callable[[int], Any] = bytearray) -> Any:
        """Receive what send_obj() sends, into what `allocator(bytes)` gives.

        If it is interrupted, or the allocator fails, the object is the next call's.
        """
        function("allocator", allocator)
        wire = self._tag(tag, False, 1)
        nbytes = self._sizes.pop(wire, None)
        if nbytes is None:
            size = array.array("Q", [0])
            await self.recv(size, tag=tag)
            nbytes = size[0]
        try:
            obj = allocator(nbytes)
            await self.recv(obj, tag=tag)
        except self._failures:
            raise  # of the connection, or a message that did not fit: it is gone
        except BaseException:
            self._sizes[wire] = nbytes
            raise
        return obj

    # ---- Others ----

    async def flush(self) -> None:
        """Complete everything posted before."""
        await comm.flush_ep(self._check_open())

    def cuda_support(self) -> bool:
        """Whether CUDA memory can be sent."""
        return bool(self._ctx is not None and self._ctx.context.cuda_support)

    def get_ucp_worker(self) -> int:
        """The worker's handle."""
        if self._ctx is None:
            raise UCXCloseError("Endpoint closed")
        return self._ctx.worker.handle

    def get_ucp_endpoint(self) -> int:
        """The endpoint's handle."""
        return self._uid

    def ucx_info(self) -> str:
        """UCX's description."""
        if self._ep is None:
            raise UCXCloseError("Endpoint closed")
        return self._ep.info()

    def close_after_n_recv(self, n: int, count_from_ep_creation: bool = False) -> None:
        """Close once `n` more messages are received, or `n` in all."""
        n = integer("n", n)
        if not count_from_ep_creation:
            n += self._finished_recv_count
        limit = self._close_after_n_recv
        if limit is not None and not (self._peer_closes and self._finished_recv_count >= limit):
            raise UCXError(f"close_after_n_recv has already been set to: {limit} (abs)")
        if n == self._finished_recv_count:
            self.abort()
        elif n > self._finished_recv_count:
            self._close_after_n_recv = n
        else:
            raise UCXError(f"`n` cannot be less than current recv_count: {n} (abs) < {self._finished_recv_count} (abs)")

    def _peer_sent(self, n: int) -> None:
        """The peer closes after `n` messages; what the program asked for itself comes first."""
        if self._close_after_n_recv is not None:
            return
        self._peer_closes = True
        self._close_after_n_recv = max(n, self._finished_recv_count)
        self._counted()

    def _received(self) -> None:
        """One message more; the last one that is to come closes the endpoint."""
        self._finished_recv_count += 1
        self._counted()

    def _counted(self, later: bool = False) -> None:
        """A message was received and counted, or all that were are taken. later: who waits for it goes on in the
        loop's next turn only."""
        if self._close_after_n_recv is None or self._finished_recv_count < self._close_after_n_recv:
            return
        if not self._peer_closes:
            self.abort()
        elif self._untaken_count == 0:
            self._close_soon(later)

    def _close_soon(self, later: bool) -> None:
        """Close as the peer did, but a moment later: nobody expects that between two awaits. Who gathered tasks that
        receive goes on two turns after them."""
        self._closes_soon = True
        try:
            asyncio.get_running_loop()
            _abort_soon(4 if later else 3, weakref.ref(self))
        except RuntimeError:
            self.abort()

    def set_close_callback(self, callback_func: Callable[[], None]) -> None:
        """Call `callback_func()` once, when the endpoint is closed or the peer is gone: at once if it is."""
        if self._ep is None:
            raise UCXCloseError("Endpoint closed")
        self._ep.set_close_callback(callback_func)


def _sends(endpoint: weakref.ref[Endpoint]) -> list[int]:
    """The ids of what it is sending; as long as there is something, that holds it."""
    ep = endpoint()
    return [] if ep is None else [*ep._sends(), *(operation.id for operation in ep._sending)]


def _abort_soon(turns: int, endpoint: weakref.ref[Endpoint]) -> None:
    """After so many turns of the loop."""
    if turns > 0:
        asyncio.get_running_loop().call_soon(_abort_soon, turns - 1, endpoint)
        return
    ep = endpoint()
    if ep is not None:
        ep.abort()
