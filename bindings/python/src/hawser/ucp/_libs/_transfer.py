"""Tagged messages, streams, active messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hawser import _constants as c
from hawser._check import integer, one

from ._context import Feature, UCXContext
from ._endpoint import AM_ID, UCXEndpoint
from ._request import Call, UCXRequest, callback, posted, start_recv, start_send, tag_number, view_of
from ._worker import UCXWorker
from .arr import Array, asarray


def array_for(context: UCXContext, feature: Feature, buffer: Any) -> Array:
    """The buffer of a transfer that needs a feature of its context."""
    array = asarray(buffer)
    context._need(feature)
    if array.cuda and not context.cuda_support:
        raise ValueError(
            "UCX is not configured with CUDA support, please add `cuda_copy` and/or `cuda_ipc` to the UCX_TLS "
            "environment variable if you wish to use CUDA memory"
        )
    return array


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
    one("ep", ep, UCXEndpoint).raise_on_error()
    array = array_for(ep.worker._context, Feature.TAG, buffer)
    name = name or "tag_send_nb"
    ending = callback(cb_func, cb_args, cb_kwargs)
    operation = posted(ep._endpoint.send, name, view_of(array, nbytes, False), tag_number(tag))
    return start_send(Call(operation, ending, name, owner=ep))


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
    one("worker", worker, UCXWorker)._assert_initialized()
    if ep is not None:
        one("ep", ep, UCXEndpoint)
    array = array_for(worker._context, Feature.TAG, buffer)
    name = name or "tag_recv_nb"
    name = name if "tag" in name else f"{name} tag_recv_nb"
    view = view_of(array, nbytes, True)
    ending = callback(cb_func, cb_args, cb_kwargs)
    operation = posted(worker._worker.recv, name, view, tag_number(tag), integer("tag_mask", tag_mask) & c.FOREVER)
    return start_recv(Call(operation, ending, name, nbytes, ep))


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
    array = array_for(one("ep", ep, UCXEndpoint).worker._context, Feature.STREAM, buffer)
    name = name or "stream_send_nb"
    ending = callback(cb_func, cb_args, cb_kwargs)
    operation = posted(ep._endpoint.stream_send, name, view_of(array, nbytes, False))
    return start_send(Call(operation, ending, name, owner=ep))


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
    array = array_for(one("ep", ep, UCXEndpoint).worker._context, Feature.STREAM, buffer)
    name = name or "stream_recv_nb"
    ending = callback(cb_func, cb_args, cb_kwargs)
    operation = posted(ep._endpoint.stream_recv, name, view_of(array, nbytes, True), True)
    return start_recv(Call(operation, ending, name, nbytes, ep))


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
    array = array_for(one("ep", ep, UCXEndpoint).worker._context, Feature.AM, buffer)
    name = name or "am_send_nbx"
    header = b"\1\0\0\0" if array.cuda else b"\0\0\0\0"
    ending = callback(cb_func, cb_args, cb_kwargs)
    operation = posted(ep._endpoint.send_am, name, view_of(array, nbytes, False), AM_ID, header)
    return start_send(Call(operation, ending, name, owner=ep))


def am_recv_nb(
    ep: UCXEndpoint,
    cb_func: Callable[..., object],
    cb_args: tuple[Any, ...] | None = None,
    cb_kwargs: dict[str, Any] | None = None,
    name: str | None = "am_recv_nb",
) -> None:
    """Receive the next active message: `cb_func(received, exception, *cb_args, **cb_kwargs)`."""
    one("ep", ep, UCXEndpoint).worker._context._need(Feature.AM)
    ep._am_recv(callback(cb_func, cb_args, cb_kwargs))
