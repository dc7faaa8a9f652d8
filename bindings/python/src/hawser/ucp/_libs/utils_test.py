"""Blocking sends and receives for tests of ucx_api."""

from __future__ import annotations

from typing import Any

from . import ucx_api
from .arr import Array


def get_endpoint_error_handling_default() -> bool:
    """What programs that choose by the version of UCX pass as endpoint_error_handling."""
    return True


def blocking_handler(request: Any, exception: Exception | None, finished: list[bool]) -> None:
    """A callback that notes the end."""
    assert exception is None
    finished[0] = True


def _until(worker: Any, finished: list[bool]) -> None:
    while not finished[0]:
        worker.progress()


def blocking_flush(obj: Any) -> None:
    """Flush a worker or an endpoint."""
    finished = [False]
    obj.flush(blocking_handler, cb_args=(finished,))
    worker = obj if isinstance(obj, ucx_api.UCXWorker) else obj.worker
    _until(worker, finished)


def blocking_send(worker: Any, ep: Any, msg: Any, tag: int = 0) -> None:
    """Send a tagged message and wait for it."""
    array = Array(msg)
    finished = [False]
    req = ucx_api.tag_send_nb(ep, array, array.nbytes, tag=tag, cb_func=blocking_handler, cb_args=(finished,))
    if req is not None:
        _until(worker, finished)


def blocking_recv(worker: Any, ep: Any, msg: Any, tag: int = 0) -> None:
    """Receive a tagged message and wait for it."""
    array = Array(msg)
    finished = [False]
    req = ucx_api.tag_recv_nb(
        worker, array, array.nbytes, tag=tag, cb_func=blocking_handler, cb_args=(finished,), ep=ep
    )
    if req is not None:
        _until(worker, finished)


def non_blocking_handler(request: Any, exception: Exception | None, completed_cb: Any) -> None:
    """A callback that counts the end."""
    if exception is not None:
        print(exception)
    assert exception is None
    completed_cb()


def non_blocking_send(worker: Any, ep: Any, msg: Any, started_cb: Any, completed_cb: Any, tag: int = 0) -> Any:
    """Send a tagged message; the callbacks tell of its begin and end."""
    array = Array(msg)
    started_cb()
    req = ucx_api.tag_send_nb(ep, array, array.nbytes, tag=tag, cb_func=non_blocking_handler, cb_args=(completed_cb,))
    if req is None:
        completed_cb()
    return req


def non_blocking_recv(worker: Any, ep: Any, msg: Any, started_cb: Any, completed_cb: Any, tag: int = 0) -> Any:
    """Receive a tagged message; the callbacks tell of its begin and end."""
    array = Array(msg)
    started_cb()
    return ucx_api.tag_recv_nb(
        worker, array, array.nbytes, tag=tag, cb_func=non_blocking_handler, cb_args=(completed_cb,), ep=ep
    )


def blocking_am_send(worker: Any, ep: Any, msg: Any) -> None:
    """Send an active message and wait for it."""
    array = Array(msg)
    finished = [False]
    req = ucx_api.am_send_nbx(ep, array, array.nbytes, cb_func=blocking_handler, cb_args=(finished,))
    if req is not None:
        _until(worker, finished)


def blocking_am_recv_handler(recv_obj: Any, exception: Exception | None, ret: list[Any]) -> None:
    """A callback that keeps what came."""
    assert exception is None
    ret[0] = recv_obj


def blocking_am_recv(worker: Any, ep: Any) -> Any:
    """Receive an active message."""
    ret = [None]
    ucx_api.am_recv_nb(ep, cb_func=blocking_am_recv_handler, cb_args=(ret,))
    while ret[0] is None:
        worker.progress()
    return ret[0]
