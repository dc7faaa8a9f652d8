"""Endpoints of UCXX's asyncio API: those of hawser.ucp with UCXX's names, rules and exceptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hawser._check import each
from hawser._errors import ErrorCode, HawserError
from hawser._objects import memory_for
from hawser.ucp import _endpoint as _ucp
from hawser.ucp._libs.exceptions import translate_receive
from hawser.ucp.exceptions import UCXError as _UCPError

from .._lib.arr import Array
from .._lib.libucxx import TagProbeResult, UCXEndpoint, UCXXTag
from .._lib.requests import UCXRequest, empty
from ..exceptions import UCXCanceledError, UCXConnectionResetError, UCXError, convert


class Endpoint(_ucp.Endpoint):
    """A connection to a peer. Made by create_endpoint(), create_endpoint_from_worker_address() and listeners."""

    _exact = False
    _failures = UCXError
    _ep: Any

    def __init__(self, endpoint: UCXEndpoint, ctx: Any, tags: dict[str, int] | None = None) -> None:
        if not isinstance(endpoint, UCXEndpoint):
            raise ValueError(f"a UCXEndpoint is needed, not {type(endpoint).__name__}")
        super().__init__(endpoint, ctx, tags)

    # ---- What it is ----

    @property
    def alive(self) -> bool:
        """Whether it is open and the peer is there."""
        return self._ep is not None and self._ep.alive

    @property
    def closed(self) -> bool:  # type: ignore[override]
        """Whether it is closed here, or the peer is gone."""
        return self._is_closed()

    @property
    def ucp_endpoint(self) -> int:
        """The endpoint's handle."""
        return self._uid

    @property
    def ucp_worker(self) -> int:
        """The worker's handle."""
        return self._ep.worker_handle

    @property
    def ucxx_endpoint(self) -> int:
        """A number that names it."""
        return self._ep.ucxx_ptr

    @property
    def ucxx_worker(self) -> int:
        """A number that names the worker."""
        return self._ep.ucxx_worker_ptr

    # ---- Closing ----

    def abort(self, period: int = 10**10, max_attempts: int = 1) -> None:
        """Close at once; what is pending ends with UCXCanceledError."""
        super().abort()

    async def close(self, period: int = 10**10, max_attempts: int = 1) -> None:
        """Complete what was sent and close."""
        if not self._is_closed():
            self._ep.worker._worker.progress()
            await asyncio.sleep(0)
        self.abort()

    def _check_open(self, receiving: str = "") -> Any:
        self._told = True  # UCXX has no cancelled receive for what ended between two calls
        return super()._check_open(receiving)

    # ---- Messages ----

    def _wire_tag(self, tag: Any, force_tag: bool, receive: int) -> int:
        return self._tag(_checked_tag(tag, force_tag), force_tag, receive)

    async def send(self, buffer: Any, tag: Any = None, force_tag: bool = False) -> None:
        """Send a buffer. tag: anything hashable that the receiver names too; force_tag: as it is."""
        try:
            await super().send(buffer, _checked_tag(tag, force_tag), force_tag)
        except Exception as e:
            raise convert(e) from e

    async def recv(self, buffer: Any, tag: Any = None, force_tag: bool = False) -> None:  # type: ignore[override]
        """Receive into a writable buffer of at least the message's size."""
        try:
            await super().recv(buffer, _checked_tag(tag, force_tag), force_tag)
        except Exception as e:
            raise convert(e) from e

    async def send_obj(self, obj: Any, tag: Any = None) -> None:
        """Send a buffer whose size the receiver does not know."""
        try:
            await super().send_obj(obj, _checked_tag(tag, False))
        except Exception as e:
            raise convert(e) from e

    def _open_ep(self) -> Any:
        try:
            return self._check_open()
        except Exception as e:
            raise convert(e) from e

    async def am_send(self, buffer: Any, memory_type_policy: Any = None, user_header: bytes = b"") -> None:
        """Send a buffer that the receiver allocates, and a header."""
        self._look_if_by_address()
        ep = self._open_ep()
        request = ep.am_send(_array(buffer), memory_type_policy, user_header)
        self._send_count += 1
        await self._sent_by(request)

    async def am_send_iov(self, buffers: Any, memory_type_policy: Any = None, user_header: bytes = b"") -> None:
        """Send buffers as one active message."""
        self._look_if_by_address()
        ep = self._open_ep()
        request = ep.am_send_iov([_array(b) for b in each("buffers", buffers)], memory_type_policy, user_header)
        self._send_count += 1
        await self._sent_by(request)

    async def _sent_by(self, request: UCXRequest) -> None:
        """Await a send of the core. As in UCXX it just ends where the peer has closed; where the peer was lost it was
        cancelled for that, and tells of it."""
        try:
            await request.wait()
        except UCXCanceledError as e:
            error = self._hawser._error
            if self._ep is None or error is None:
                raise
            if error[0] != ErrorCode.PEER_CLOSED or self._tags is None:
                raise UCXConnectionResetError(f"Endpoint {self._uid:#x} error: Connection reset by remote peer") from e

    def _look_if_by_address(self) -> None:
        if self._tags is None:
            self._look()

    async def am_recv(self) -> Any:
        """The next active message."""
        return (await self.am_recv_with_header())[0]

    async def am_recv_with_header(self) -> tuple[Any, bytes]:
        """The next active message, and the header it was sent with."""
        if self._ep is None or not self._ep.am_probe():
            self._open_ep()
        self._recv_count += 1
        ep = self._ep
        request = ep.am_recv()
        try:
            await request.wait()
        except asyncio.CancelledError:
            ep._am_give_back(request)
            raise
        self._received()
        return request.recv_buffer, request.recv_header

    async def send_multi(self, buffers: Any, tag: Any = None, force_tag: bool = False) -> None:
        """Send a list or tuple of buffers as one message."""
        self._look_if_by_address()
        ep = self._open_ep()
        if not isinstance(buffers, (list, tuple)):
            raise ValueError("The `buffers` argument must be a `list` or `tuple`")
        wire = self._wire_tag(tag, force_tag, 0)
        request = ep.tag_send_multi([_array(b) for b in buffers], UCXXTag(wire))
        self._send_count += 1
        await self._sent_by(request)

    async def recv_multi(self, tag: Any = None, force_tag: bool = False) -> list[Any]:
        """The buffers of the next send_multi()."""
        wire = self._wire_tag(tag, force_tag, 1)
        if self._ep is None or (self._hawser._error is not None and self._hawser.probe(wire) is None):
            self._open_ep()
        self._recv_count += 1
        buffers = await (self._fetched(wire) if self._tags is not None else self._multi_by_address(wire))
        self._received()
        return buffers

    async def _fetched(self, wire: int) -> list[Any]:
        try:
            segments = await self._hawser.recv_multi(wire)  # which loses nothing when it is cancelled
            buffers = memory_for(segments, empty, empty)
            await segments.fetch(buffers)
        except HawserError as e:
            raise convert(translate_receive(e, "recv_multi")) from e
        return buffers

    async def _multi_by_address(self, wire: int) -> list[Any]:
        request = self._ep.tag_recv_multi(UCXXTag(wire))
        try:
            await request.wait()
        except asyncio.CancelledError:
            request._outcome.give_back()
            raise
        return list(request.py_buffers)

    def tag_probe(self, tag: Any = None, force_tag: bool = False, remove: bool = False) -> TagProbeResult:
        """Look for a message; remove: only recv_with_handle() gets it then."""
        wire = self._wire_tag(tag, force_tag, 1)
        ep = self._ep if self._ep is not None else self._open_ep()
        if self._tags is None or force_tag:
            return ep.worker.tag_probe(UCXXTag(wire), remove=remove)
        ep.worker._worker.progress()
        look = self._hawser.take if remove else self._hawser.probe
        return TagProbeResult(look(wire), remove)

    async def recv_with_handle(self, buffer: Any, probe_result: TagProbeResult) -> None:
        """Receive a message that tag_probe() removed."""
        ep = self._ep if self._ep is not None else self._open_ep()
        self._recv_count += 1
        await ep.tag_recv_with_handle(_array(buffer), probe_result).wait()
        self._received()

    def close_after_n_recv(self, n: int, count_from_ep_creation: bool = False) -> None:
        """Close once `n` more messages are received, or `n` in all."""
        try:
            super().close_after_n_recv(n, count_from_ep_creation)
        except _UCPError as e:
            raise UCXError(str(e)) from e

    def set_close_callback(
        self,
        callback_func: Callable[..., None],
        cb_args: tuple[Any, ...] | None = None,
        cb_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Call it once, when the endpoint is closed or the peer is gone. Raises RuntimeError if it is."""
        if self._ep is None:
            raise RuntimeError("The endpoint is closed")
        self._ep.set_close_callback(callback_func, cb_args, cb_kwargs)


def _array(buffer: Any) -> Array:
    return buffer if isinstance(buffer, Array) else Array(buffer)


def as_tag(tag: Any) -> UCXXTag:
    """A tag that is used as it is. Raises TypeError, OverflowError."""
    return tag if isinstance(tag, UCXXTag) else UCXXTag(tag)


def _checked_tag(tag: Any, force_tag: bool) -> Any:
    if force_tag and tag is not None:
        return as_tag(tag).value
    return tag.value if isinstance(tag, UCXXTag) else tag
