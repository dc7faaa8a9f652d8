"""From an operation to UCXX's request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawser.ucp._libs._request import Call, posted, view_of
from hawser.ucp._libs._transfer import array_for
from hawser.ucp._libs.ucx_api import Feature

from .arr import asarray
from .requests import Outcome, UCXRequest
from .tags import TagProbeResult

if TYPE_CHECKING:
    from .endpoint import UCXEndpoint
    from .worker import UCXWorker


def start(
    outcome: Outcome,
    operation: Any,
    name: str,
    owner: UCXEndpoint | None = None,
    ended: Callable[..., None] | None = None,
) -> None:
    """Have the end of an operation be that of `outcome`, unless `ended` says what it is."""
    outcome.call = operation
    call = Call(operation, ended or outcome.ended, None, None, name, owner=owner)
    if operation.done():
        call.call()
    else:
        call.start()


def started(worker: UCXWorker, operation: Any, name: str, receives: bool, owner: UCXEndpoint | None) -> UCXRequest:
    outcome = Outcome(receives)
    start(outcome, operation, name, owner)
    return UCXRequest(worker, outcome)


def post_tag_recv(worker: UCXWorker, arr: Any, tag: Any, mask: Any, owner: UCXEndpoint | None = None) -> UCXRequest:
    array = array_for(worker._context, Feature.TAG, arr)
    view = view_of(array, array.nbytes, True)
    operation = posted(worker._worker.recv, "tag_recv", view, int(tag), int(mask))
    return started(worker, operation, "tag_recv", True, owner)


def recv_removed(worker: UCXWorker, arr: Any, probe_result: TagProbeResult) -> UCXRequest:
    if not isinstance(probe_result, TagProbeResult):
        raise TypeError(f"a TagProbeResult is needed, not {type(probe_result).__name__}")
    message = probe_result._take()
    array = asarray(arr)
    operation = posted(message.recv, "tag_recv_with_handle", view_of(array, array.nbytes, True))
    return started(worker, operation, "tag_recv_with_handle", False, None)
