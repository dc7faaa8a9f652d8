"""The asyncio API of UCX-Py."""

from __future__ import annotations

import array
import asyncio
import contextlib
import gc
import logging
import math
import os
import re
import struct
import threading
import time
import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from operator import index
from typing import Any

from hawser import _core
from hawser._endpoint import connect as _connect
from hawser._unique import Unique

from . import comm
from ._libs import of_dask, ucx_api
from ._libs._endpoint import AM_ID
from ._libs._request import view_of
from ._libs.arr import Array
from ._libs.exceptions import (
    LOST,
    ErrorCode,
    HawserError,
    UCXPeerLost,
    check_short,
    too_short,
    translate,
    translate_receive,
)
from ._libs.ucx_api import is_am_supported  # noqa: F401 (programs find it here too)
from ._libs.utils import nvtx_annotate
from .continuous_ucx_progress import BlockingMode, NonBlockingMode
from .exceptions import UCXCanceled, UCXCloseError, UCXError
from .utils import get_event_loop, get_ucxpy_logger, hash64bits

logger = logging.getLogger("ucx")

# The context that the module's functions use; made at first use.
_ctx: ApplicationContext | None = None
_ctx_lock = threading.RLock()

# The message that introduces an endpoint, and its tag.
_HELLO_TAG = 0x6877732D68656C6C
_HELLO = struct.Struct("QQQ")
_LET_END_SECONDS = 1.0
_LET_SEND_SECONDS = 1.0  # how long what is being sent goes on after close()
_CONNECTING = 32  # connections under way at once in a loop
_KEEP = 4096  # user tags of an endpoint whose hash is remembered


def _get_ctx() -> ApplicationContext:
    global _ctx
    with _ctx_lock:
        if _ctx is None:
            _ctx = ApplicationContext()
        return _ctx


@lru_cache(_KEEP)
def _portable_hash(tag: Any) -> int:
    """hash(tag), but the same in every process for strings too."""
    if isinstance(tag, (str, bytes)):
        return hash64bits("tag", tag)
    return hash(tag)


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


async def _introduce(ctx: ApplicationContext, ep: ucx_api.UCXEndpoint, first: str) -> Endpoint:
    tags = await agree_on_tags(ep, ctx.connect_timeout, first if ep.of_ucxpy else None)
    endpoint = Endpoint(ep, ctx, tags)
    CtrlMsg.setup_ctrl_recv(endpoint)
    return endpoint


async def _listener_handler_coroutine(
    conn_request: int, ctx: ApplicationContext, func: Callable[[Endpoint], Any], endpoint_error_handling: bool
) -> None:
    ep = ucx_api.UCXEndpoint.create_from_conn_request(ctx.worker, conn_request, endpoint_error_handling)
    endpoint = await _introduce(ctx, ep, "send")
    endpoint._log_made("_listener_handler() server")
    del ctx, ep
    if asyncio.iscoroutinefunction(func):
        await func(endpoint)
    else:
        func(endpoint)


def _listener_handler(
    conn_request: int,
    event_loop: asyncio.AbstractEventLoop,
    callback_func: Callable[[Endpoint], Any],
    ctx: weakref.ref[ApplicationContext],
    endpoint_error_handling: bool,
) -> None:
    def serve(loop: asyncio.AbstractEventLoop) -> None:
        context = ctx()
        if context is None:
            _core.close(conn_request)
            return
        coroutine = _listener_handler_coroutine(conn_request, context, callback_func, endpoint_error_handling)
        # Loops hold tasks weakly, and so may what a task waits for.
        task = loop.create_task(coroutine)
        context._handlers.add(task)
        task.add_done_callback(context._handlers.discard)

    if not serve_in(event_loop, serve):
        _core.close(conn_request)


def serve_in(event_loop: asyncio.AbstractEventLoop, serve: Callable[[asyncio.AbstractEventLoop], None]) -> bool:
    """Call serve(loop) for a peer that came, in the loop of its listener, which may run on another thread than the one
    that met the peer; while it does not run, in the one that runs here. False: there is none any more."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is None or (running is not event_loop and event_loop.is_running()):
        try:
            event_loop.call_soon_threadsafe(serve, event_loop)
        except RuntimeError:
            return False
    else:
        serve(running)
    return True


def _epoll_fd_finalizer(fd: int, progress_tasks: list[Any]) -> None:
    progress_tasks.clear()
    os.close(fd)


def _close_all(worker: ucx_api.UCXWorker, context: ucx_api.UCXContext) -> None:
    worker.close()
    context.close()


class _Context(ucx_api.UCXContext):
    """The asyncio API has no remote memory: no peer gets at any."""

    _plain_rma = False


def _speaks_ucxpy(wire: str | None) -> bool:
    """Whether peers may be UCX-Py itself; where the program does not say, $HAWSER_UCP_WIRE does."""
    wire = wire or os.environ.get("HAWSER_UCP_WIRE") or "hawser"
    if wire not in ("hawser", "ucx-py"):
        raise ValueError(f'`wire` must be "hawser" or "ucx-py", not {wire!r}')
    return wire == "ucx-py"


def _seconds(connect_timeout: float | None) -> float:
    """The connect timeout; where the program gives none, $UCXPY_CONNECT_TIMEOUT, or else 5 s, is it."""
    given = os.environ.get("UCXPY_CONNECT_TIMEOUT", 5) if connect_timeout is None else connect_timeout
    with contextlib.suppress(ValueError):
        seconds = float(given)
        if not math.isnan(seconds):
            return seconds
    raise ValueError(f"the connect timeout (UCXPY_CONNECT_TIMEOUT) must be a number of seconds, not {given!r}")


class ApplicationContext:
    """A context with its one worker. The module's functions use a global one."""

    def __init__(
        self,
        config_dict: dict[str, str] = {},  # noqa: B006
        blocking_progress_mode: bool | None = None,
        connect_timeout: float | None = None,
        wire: str | None = None,
    ) -> None:
        self.progress_tasks: list[Any] = []
        self._handlers: set[asyncio.Task[None]] = set()  # of listeners, one for each peer
        of_ucxpy = _speaks_ucxpy(wire)
        self.connect_timeout = _seconds(connect_timeout)
        self._open(config_dict)
        self.worker._loop_cancels = True
        self.worker.of_ucxpy = of_ucxpy
        if blocking_progress_mode is None:
            blocking_progress_mode = "UCXPY_NON_BLOCKING_MODE" not in os.environ
        self.blocking_progress_mode = blocking_progress_mode
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )
        weakref.finalize(self, _close_all, self.worker, self.context)
        if blocking_progress_mode:
            self.epoll_fd = self.worker.init_blocking_progress_mode()
            weakref.finalize(self, _epoll_fd_finalizer, self.epoll_fd, self.progress_tasks)
        self.continuous_ucx_progress()

    def _open(self, config_dict: dict[str, str]) -> None:
        self.context: Any = _Context(config_dict)
        self.worker: Any = ucx_api.UCXWorker(self.context)

    def create_listener(
        self,
        callback_func: Callable[[Endpoint], Any],
        port: int | None = 0,
        endpoint_error_handling: bool = True,
    ) -> Listener:
        """Listen; see the module's create_listener()."""
        self.continuous_ucx_progress()
        if port is None:
            port = 0
        logger.info("create_listener() - Start listening on port %d", port)
        return Listener(
            ucx_api.UCXListener(
                worker=self.worker,
                port=port,
                cb_func=_listener_handler,
                cb_args=(
                    get_event_loop(),
                    callback_func,
                    weakref.ref(self),
                    endpoint_error_handling,
                ),
            ),
            self,
        )

    async def create_endpoint(self, ip_address: str, port: int, endpoint_error_handling: bool = True) -> Endpoint:
        """Connect; see the module's create_endpoint()."""
        ucx_api.check_port(port)
        self.continuous_ucx_progress()
        async with self._turn():
            return await self._connect(ip_address, port, endpoint_error_handling)

    def _turn(self) -> asyncio.Semaphore:
        """Many connections at once would wait for each other longer than the connect timeout."""
        loop = asyncio.get_running_loop()
        turn = self._turns.get(loop)
        if turn is None:
            turn = self._turns[loop] = asyncio.Semaphore(_CONNECTING)
        return turn

    async def _connected(self, ip_address: str, port: int, timeout: float) -> Any:
        try:
            raw = self.worker.of_ucxpy
            return await _connect(ip_address, port, worker=self.worker._worker, timeout=max(timeout, 1e-3), raw=raw)
        except HawserError as e:
            if e.code == ErrorCode.TIMED_OUT:
                raise TimeoutError from e
            raise ucx_api.unresolved(e) or translate(e, "create_endpoint") from e

    async def _connect(self, ip_address: str, port: int, endpoint_error_handling: bool) -> Endpoint:
        connected = await self._connected(ip_address, port, self.connect_timeout)
        ep = ucx_api.UCXEndpoint(self.worker, connected, endpoint_error_handling)
        endpoint = await _introduce(self, ep, "recv")
        endpoint._log_made("create_endpoint() client")
        return endpoint

    async def create_endpoint_from_worker_address(self, address: Any, endpoint_error_handling: bool = True) -> Endpoint:
        """Connect to a worker by its address; there is no handshake, so no tags."""
        self.continuous_ucx_progress()
        ep = ucx_api.UCXEndpoint.create_from_worker_address(self.worker, address, endpoint_error_handling)
        endpoint = Endpoint(ep, self, None)
        endpoint._log_made("create_endpoint_from_worker_address() client")
        return endpoint

    def continuous_ucx_progress(self, event_loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Have an event loop make progress; again for the same loop does nothing."""
        if event_loop is None:
            try:
                event_loop = asyncio.get_running_loop()
            except RuntimeError:
                return  # the first await in a loop binds it
        self.progress_tasks[:] = [t for t in self.progress_tasks if not t.event_loop.is_closed()]
        if any(task.event_loop is event_loop for task in self.progress_tasks):
            return
        mode = BlockingMode if self.blocking_progress_mode else NonBlockingMode
        self.progress_tasks.append(mode(self.worker, event_loop))

    def get_ucp_worker(self) -> int:
        """The worker's handle."""
        return self.worker.handle

    def get_config(self) -> dict[str, str]:
        """The options, without the prefix UCX_."""
        return self.context.get_config()

    def ucp_context_info(self) -> str:
        """UCX's description of the context."""
        return self.context.info()

    def ucp_worker_info(self) -> str:
        """UCX's description of the worker."""
        return self.worker.info()

    def fence(self) -> Any:
        """Operations posted later take effect after those posted before."""
        return self.worker.fence()

    async def flush(self) -> None:
        """Complete everything posted before."""
        await comm.flush_worker(self.worker)

    def get_worker_address(self) -> Any:
        """The worker's address, for create_endpoint_from_worker_address()."""
        return self.worker.get_address()

    def register_am_allocator(self, allocator: Callable[[int], Any], allocator_type: str) -> None:
        """See the module's register_am_allocator()."""
        kinds = {"host": ucx_api.AllocatorType.HOST, "cuda": ucx_api.AllocatorType.CUDA}
        kind = kinds.get(allocator_type, ucx_api.AllocatorType.UNSUPPORTED)
        self.worker.register_am_allocator(allocator, kind)

    @nvtx_annotate("UCXPY_WORKER_RECV", color="red", domain="ucxpy")
    async def recv(self, buffer: Any, tag: int) -> bool:
        """Receive a message of any peer; `tag` is used as it is."""
        tag = index(tag)
        wanted = Array(buffer) if not isinstance(buffer, Array) else buffer
        name = f"[Worker Recv #000] tag: {tag:#x}, nbytes: {wanted.nbytes}, type: {type(wanted.obj)}"
        try:
            got = await self.worker._worker.recv(view_of(wanted, wanted.nbytes, True), tag)
        except HawserError as e:
            raise translate(e, name) from e
        check_short(name, got, wanted.nbytes)
        return True


class Listener(Unique):
    """Listens until it is closed or nothing refers to it; the accepted endpoints live on."""

    def __init__(self, backend: ucx_api.UCXListener, ctx: ApplicationContext | None = None) -> None:
        assert backend.initialized
        self._b = backend
        self._ctx = ctx

    def closed(self) -> bool:
        """Whether it is closed."""
        return not self._b.initialized

    @property
    def ip(self) -> str:
        """The address it listens on."""
        return self._b.ip

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._b.port

    def close(self) -> None:
        """Stop listening."""
        self._b.close()
        self._ctx = None


def _is_array(buffer: Any) -> Any:
    return buffer.source if isinstance(buffer, Array) else buffer


@_core.own
class Endpoint(_core.UcpEndpoint):
    """A connection to a peer. Made by create_endpoint(), create_endpoint_from_worker_address() and listeners.

    send() and recv() are of C: they give hawser's awaitables for the usual messages, else the coroutines below.
    """

    # Whether a message that is shorter than the buffer is an error.
    _exact = True

    def __init__(
        self, endpoint: ucx_api.UCXEndpoint, ctx: ApplicationContext, tags: dict[str, int] | None = None
    ) -> None:
        self._ep: ucx_api.UCXEndpoint | None = endpoint
        self._uid = endpoint.handle
        self._hawser = endpoint._endpoint
        self._ctx: ApplicationContext | None = ctx
        self._tags = tags
        self._msg_send = tags["msg_send"] if tags else 0
        self._msg_recv = tags["msg_recv"] if tags else 0
        self._hash: Callable[[Any], int] = hash if endpoint.of_ucxpy else _portable_hash
        self._hashes: dict[Any, tuple[int, int]] = {}
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
        found = self._hashes.get(tag)
        if found is None:
            if len(self._hashes) >= _KEEP:
                self._hashes.clear()
            number = self._hash(tag)
            found = self._hashes[tag] = (hash64bits(self._msg_send, number), hash64bits(self._msg_recv, number))
        return found

    def _tag(self, tag: Any, force_tag: bool, receive: int) -> int:
        """The tag on the wire; receive: 0 to send, 1 to receive."""
        if force_tag and tag is not None:
            return index(tag)
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
        hawser = self._hawser
        if hawser._error is not None or self._ep is None or self._tags is None:
            self._look()
            self._check_open()
        wire = self._msg_send if tag is None and not force_tag and self._tags else self._tag(tag, force_tag, 0)
        if type(buffer) is Array:
            buffer = buffer.source
        self._send_count += 1
        try:
            await self._sent(hawser.send(buffer, wire))
        except HawserError as e:
            self._send_failed(e, wire, buffer)
            return None
        except BufferError as e:
            raise self._bad_memory(buffer, False) from e
        return True

    async def _sent(self, operation: _core.Operation[Any]) -> None:
        """Await a send that an abort is to end."""
        self._sending.add(operation)
        try:
            await operation
        finally:
            self._sending.discard(operation)

    def _send_failed(self, e: HawserError, wire: int, buffer: Any) -> None:
        error = self._send_failure(e, self._describe("Send", self._send_count - 1, wire, buffer))
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
        self._send_count += 1
        try:
            await self._sent(self._hawser.send_am(buffer, AM_ID, header))
        except HawserError as e:
            self._send_failed(e, 0, buffer)
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
        await self.send(nbytes, tag=tag)
        await self.send(obj, tag=tag)

    async def recv_obj(self, tag: Any = None, allocator: Callable[[int], Any] = bytearray) -> Any:
        """Receive what send_obj() sends, into what `allocator(bytes)` gives."""
        nbytes = array.array("Q", [0])
        await self.recv(nbytes, tag=tag)
        obj = allocator(nbytes[0])
        await self.recv(obj, tag=tag)
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


# ---- The module's functions: a global context ----


def options_of_first(context: object, options: dict[str, str], env_takes_precedence: bool) -> dict[str, str]:
    """Those to open the global context with, unless there is one; the environment may have the last word."""
    if context is not None:
        raise RuntimeError(
            "UCX is already initiated. Call reset() and init() in order to re-initate UCX with new options."
        )
    options = dict(options)
    for key in options if env_takes_precedence else ():
        env = f"UCX_{key}"
        if env in os.environ:
            logger.debug("Ignoring option %s=%s; using environment %s=%s", key, options[key], env, os.environ[env])
            options[key] = os.environ[env]
    return options


def init(
    options: dict[str, str] = {},  # noqa: B006
    env_takes_precedence: bool = False,
    blocking_progress_mode: bool | None = None,
    connect_timeout: float | None = None,
    wire: str | None = None,
) -> None:
    """Open the global context. options: UCX's, without the prefix UCX_.

    wire: "hawser", or "ucx-py" to connect to programs that run UCX-Py itself and to let them connect, with the same
    UCX on both sides; by default $HAWSER_UCP_WIRE, else "hawser".
    """
    global _ctx
    with _ctx_lock:
        options = options_of_first(_ctx, options, env_takes_precedence)
        context = _ctx = ApplicationContext(options, blocking_progress_mode, connect_timeout, wire)
    logger.info("UCP initiated using config:")
    for key, value in context.get_config().items():
        if key in options or f"UCX_{key}" in os.environ:
            logger.info("  %s: %s", key, value)


def reset() -> None:
    """Close the global context. Raises UCXError if endpoints or listeners still refer to it."""
    global _ctx
    if _ctx is None:
        return
    ref = weakref.ref(_ctx)
    loops = [task.event_loop for task in _ctx.progress_tasks]
    _ctx = None
    check_released(ref, loops)


def check_released(ref: weakref.ref[ApplicationContext], loops: list[asyncio.AbstractEventLoop]) -> None:
    """Raise UCXError if something still refers to a context that is to be closed."""
    gc.collect()
    _let_tasks_end(ref, loops)
    context = ref()
    if context is not None:
        text = (
            "Trying to reset UCX but not all Endpoints and/or Listeners are closed(). The following objects "
            "are still referencing ApplicationContext:"
        )
        for referrer in gc.get_referrers(context):
            text += f"\n  {str(referrer)[:200]}"
        raise UCXError(text)


def _let_tasks_end(context: weakref.ref[ApplicationContext], loops: list[asyncio.AbstractEventLoop]) -> None:
    """Run loops that stand still until nothing holds the context, for a moment.

    A receive can return before the task of the other end, in this process, has seen that its send
    is done: it would hold its endpoint only because its loop was stopped.
    """
    end = time.monotonic() + _LET_END_SECONDS
    with contextlib.suppress(RuntimeError):  # a loop runs in this thread
        while context() is not None and loops and time.monotonic() < end:
            loops = [loop for loop in loops if not loop.is_closed() and not loop.is_running()]
            for loop in loops:
                loop.run_until_complete(asyncio.sleep(1e-3))


def get_ucx_version() -> tuple[int, int, int]:
    """The version of UCX."""
    return ucx_api.get_ucx_version()


def get_config() -> dict[str, str]:
    """The options in use, also by Dask, or those that would be."""
    return of_dask.read_config() if _ctx is None else _ctx.get_config()


def progress() -> None:
    """Make progress until nothing is left to do."""
    worker = _get_ctx().worker
    worker.progress()
    worker.cancel_inflight_messages()


def continuous_ucx_progress(event_loop: asyncio.AbstractEventLoop | None = None) -> None:
    """Have an event loop make progress."""
    _get_ctx().continuous_ucx_progress(event_loop=event_loop)


def create_listener(
    callback_func: Callable[[Endpoint], Any],
    port: int | None = None,
    endpoint_error_handling: bool = True,
) -> Listener:
    """Listen on every IPv4 address; `callback_func` (also a coroutine function) gets each Endpoint."""
    return _get_ctx().create_listener(callback_func, port, endpoint_error_handling)


async def create_endpoint(ip_address: str, port: int, endpoint_error_handling: bool = True) -> Endpoint:
    """Connect to a listener. Raises asyncio.TimeoutError after the connect timeout."""
    return await _get_ctx().create_endpoint(ip_address, port, endpoint_error_handling)


async def create_endpoint_from_worker_address(address: Any, endpoint_error_handling: bool = True) -> Endpoint:
    """Connect to a worker by its address."""
    return await _get_ctx().create_endpoint_from_worker_address(address, endpoint_error_handling)


def get_ucp_worker() -> int:
    """The worker's handle."""
    return _get_ctx().get_ucp_worker()


def get_worker_address() -> Any:
    """The worker's address."""
    return _get_ctx().get_worker_address()


def get_ucx_address_from_buffer(buffer: Any) -> Any:
    """An address that came as bytes."""
    return ucx_api.UCXAddress.from_buffer(buffer)


async def recv(buffer: Any, tag: int) -> bool:
    """Receive a message of any peer; `tag` is used as it is."""
    return await _get_ctx().recv(buffer, tag=tag)


def get_ucp_context_info() -> str:
    """UCX's description of the context, or of Dask's."""
    info = of_dask.context_info() if _ctx is None else None
    return info or _get_ctx().ucp_context_info()


def get_ucp_worker_info() -> str:
    """UCX's description of the worker."""
    return _get_ctx().ucp_worker_info()


def transports_of_program(found: set[str], tls: str) -> set[str]:
    """The transports that carry what the program sends: connections begin by TCP also where UCX_TLS, `tls`, leaves it
    out, and UCX's context has it then."""
    excludes = tls.startswith("^")
    names = {name.partition(":")[0].lstrip("\\") for name in tls.removeprefix("^").split(",")}
    return found if excludes != bool({"all", "tcp"} & names) else found - {"tcp"}


def get_active_transports() -> set[str]:
    """The transports that the context has for messages."""
    found = set()
    for line in get_ucp_context_info().splitlines():
        match = re.search(r"resource.*md.*dev.*flags.* (\S+)/\S+ *$|resource\s+\d+\s*:.*?(\w+)/\S+", line)
        if match is not None:
            found.add(match[1] or match[2])
    return transports_of_program(found, get_config()["TLS"])


def register_am_allocator(allocator: Callable[[int], Any], allocator_type: str) -> None:
    """Have active messages received into what `allocator(bytes)` gives; type "host" or "cuda"."""
    _get_ctx().register_am_allocator(allocator, allocator_type)


async def flush() -> None:
    """Complete everything posted before."""
    if _ctx is None:
        await asyncio.sleep(0)
        return
    await _ctx.flush()


def fence() -> Any:
    """Operations posted later take effect after those posted before."""
    return None if _ctx is None else _ctx.fence()


get_ucxpy_logger()
