"""Tagged messages, streams, active messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hawser import _constants as c

from ._context import Feature, UCXContext
from ._endpoint import AM_ID, UCXEndpoint
from ._request import Call, UCXRequest, posted, tag_number, view_of
from ._worker import UCXWorker
from .arr import Array, asarray


def check_feature(context: UCXContext, feature: Feature, buffer: Array) -> None:
    context._need(feature)
    if buffer.cuda and not context.cuda_support:
        raise ValueError(
            "UCX is not configured with CUDA support, please add `cuda_copy` and/or `cuda_ipc` to the UCX_TLS "
            "environment variable if you wish to use CUDA memory"
        )


def tag_send_nb(
    ep: UCXEndpoint,
    buffer: Any,
    nbytes: int,
    tag: int,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Send a tagged message of `nbytes` bytes."""
    ep.raise_on_error()
    array = asarray(buffer)
    check_feature(ep.worker._context, Feature.TAG, array)
    name = name or "tag_send_nb"
    operation = posted(ep._endpoint.send, name, view_of(array, nbytes, False), tag_number(tag))
    if operation.done():
        return None
    return Call(operation, cb_func, cb_args, cb_kwargs, name, owner=ep).start()


def tag_recv_nb(
    worker: UCXWorker,
    buffer: Any,
    nbytes: int,
    tag: int,
    cb_func: Callable[..., None],
    tag_mask: int = -1,
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
    ep: UCXEndpoint | None = None,
) -> UCXRequest | None:
    """Receive a tagged message of any peer; `ep` says only with whom the request is cancelled."""
    array = asarray(buffer)
    check_feature(worker._context, Feature.TAG, array)
    name = name or "tag_recv_nb"
    name = name if "tag" in name else f"{name} tag_recv_nb"
    view = view_of(array, nbytes, True)
    operation = posted(worker._worker.recv, name, view, tag_number(tag), tag_mask & c.FOREVER)
    call = Call(operation, cb_func, cb_args, cb_kwargs, name, nbytes, ep)
    if operation.done():
        call.call()
        return None
    return call.start()


def stream_send_nb(
    ep: UCXEndpoint,
    buffer: Any,
    nbytes: int,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Send bytes on the stream."""
    array = asarray(buffer)
    check_feature(ep.worker._context, Feature.STREAM, array)
    name = name or "stream_send_nb"
    operation = posted(ep._endpoint.stream_send, name, view_of(array, nbytes, False))
    if operation.done():
        return None
    return Call(operation, cb_func, cb_args, cb_kwargs, name, owner=ep).start()


def stream_recv_nb(
    ep: UCXEndpoint,
    buffer: Any,
    nbytes: int,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Receive exactly `nbytes` bytes of the stream."""
    array = asarray(buffer)
    check_feature(ep.worker._context, Feature.STREAM, array)
    name = name or "stream_recv_nb"
    operation = posted(ep._endpoint.stream_recv, name, view_of(array, nbytes, True), True)
    call = Call(operation, cb_func, cb_args, cb_kwargs, name, nbytes, ep)
    if operation.done():
        call.call()
        return None
    return call.start()


def am_send_nbx(
    ep: UCXEndpoint,
    buffer: Any,
    nbytes: int,
    cb_func: Callable[..., None],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = None,
) -> UCXRequest | None:
    """Send an active message; the peer learns the kind of memory."""
    array = asarray(buffer)
    check_feature(ep.worker._context, Feature.AM, array)
    name = name or "am_send_nbx"
    header = b"\1\0\0\0" if array.cuda else b"\0\0\0\0"
    operation = posted(ep._endpoint.send_am, name, view_of(array, nbytes, False), AM_ID, header)
    if operation.done():
        return None
    return Call(operation, cb_func, cb_args, cb_kwargs, name, owner=ep).start()


def am_recv_nb(
    ep: UCXEndpoint,
    cb_func: Callable[..., object],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = "am_recv_nb",
) -> None:
    """Receive the next active message: `cb_func(received, exception, *cb_args, **cb_kwargs)`."""
    ep.worker._context._need(Feature.AM)
    ep._am_recv(cb_func, cb_args or (), cb_kwargs or {})
