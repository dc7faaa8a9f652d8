"""The calls of ucx_api as asyncio futures."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from hawser._check import one

from ._libs import arr, ucx_api
from ._libs._endpoint import UNTAKEN
from .utils import get_event_loop


def _cb_func(request: Any, exception: Exception | None, event_loop: Any, future: asyncio.Future[Any]) -> None:
    if event_loop.is_closed() or future.done():
        return
    if exception is not None:
        future.set_exception(exception)
    else:
        future.set_result(True)


class _Receive(asyncio.Future[bool]):
    """Cancelled, it takes no message: what comes is the next receive's."""

    stop: Callable[[], None] | None = None

    def cancel(self, msg: Any = None) -> bool:
        if self.stop is not None and not self.done():
            self.stop()
        return super().cancel(msg)


def _post(worker: Any, future: asyncio.Future[bool], func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The request that ends the future; None if it has."""
    request = func(*args, cb_func=_cb_func, cb_args=(future.get_loop(), future), **kwargs)
    if request is None and not future.done():
        future.set_result(True)
    _watch(worker)
    return request


def _call_ucx_api(
    worker: Any, event_loop: asyncio.AbstractEventLoop | None, func: Callable[..., Any], *args: Any, **kwargs: Any
) -> asyncio.Future[bool]:
    future: asyncio.Future[bool] = _usable(event_loop).create_future()
    _post(worker, future, func, *args, **kwargs)
    return future


def _receive(
    worker: Any, event_loop: asyncio.AbstractEventLoop | None, func: Callable[..., Any], *args: Any, **kwargs: Any
) -> asyncio.Future[bool]:
    future = _Receive(loop=_usable(event_loop))
    request = _post(worker, future, func, *args, **kwargs)
    if request is not None:
        future.stop = partial(worker.request_cancel, request)
    return future


def _usable(event_loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """The loop to tell of the end. Raises TypeError, RuntimeError: what comes for a closed one would be lost."""
    if event_loop is None:
        return get_event_loop()
    if one("event_loop", event_loop, asyncio.AbstractEventLoop).is_closed():  # type: ignore[type-abstract]
        raise RuntimeError("event_loop: it is closed")
    return event_loop


def _worker_of(ep: Any) -> Any:
    return one("ep", ep, ucx_api.UCXEndpoint).worker


def _watch(worker: Any) -> None:
    with contextlib.suppress(RuntimeError):  # no loop runs: whoever makes progress completes it
        worker._worker._watch()


def tag_send(
    ep: Any, buffer: arr.Array, nbytes: int, tag: int, name: str = "tag_send", event_loop: Any = None
) -> asyncio.Future[bool]:
    """Send a tagged message."""
    return _call_ucx_api(_worker_of(ep), event_loop, ucx_api.tag_send_nb, ep, buffer, nbytes, tag, name=name)


def stream_send(
    ep: Any, buffer: arr.Array, nbytes: int, name: str = "stream_send", event_loop: Any = None
) -> asyncio.Future[bool]:
    """Send bytes on the stream."""
    return _call_ucx_api(_worker_of(ep), event_loop, ucx_api.stream_send_nb, ep, buffer, nbytes, name=name)


def am_send(
    ep: Any, buffer: arr.Array, nbytes: int, name: str = "am_send", event_loop: Any = None
) -> asyncio.Future[bool]:
    """Send an active message."""
    return _call_ucx_api(_worker_of(ep), event_loop, ucx_api.am_send_nbx, ep, buffer, nbytes, name=name)


def tag_recv(
    obj: Any, buffer: arr.Array, nbytes: int, tag: int, name: str = "tag_recv", event_loop: Any = None
) -> asyncio.Future[bool]:
    """Receive a tagged message; obj: an endpoint or a worker."""
    worker, ep = (obj, None) if isinstance(obj, ucx_api.UCXWorker) else (_worker_of(obj), obj)
    return _receive(worker, event_loop, ucx_api.tag_recv_nb, worker, buffer, nbytes, tag, name=name, ep=ep)


def stream_recv(
    ep: Any, buffer: arr.Array, nbytes: int, name: str = "stream_recv", event_loop: Any = None
) -> asyncio.Future[bool]:
    """Receive bytes of the stream."""
    return _receive(_worker_of(ep), event_loop, ucx_api.stream_recv_nb, ep, buffer, nbytes, name=name)


def am_recv(ep: Any, name: str = "am_recv", event_loop: Any = None) -> asyncio.Future[Any]:
    """Receive the next active message."""
    future: asyncio.Future[Any] = _usable(event_loop).create_future()
    event_loop = future.get_loop()

    def done(received: Any, exception: Exception | None) -> object:
        if event_loop.is_closed() or future.done():
            return UNTAKEN
        if exception is not None:
            future.set_exception(exception)
        else:
            future.set_result(received)
        return None

    ucx_api.am_recv_nb(ep, cb_func=done, name=name)
    _watch(_worker_of(ep))
    return future


def flush_worker(worker: Any, event_loop: Any = None) -> asyncio.Future[bool]:
    """Complete everything posted before on a worker."""
    return _call_ucx_api(one("worker", worker, ucx_api.UCXWorker), event_loop, worker.flush)


def flush_ep(ep: Any, event_loop: Any = None) -> asyncio.Future[bool]:
    """Complete everything posted before on an endpoint."""
    return _call_ucx_api(_worker_of(ep), event_loop, ep.flush)
