"""From an operation to UCXX's request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hawser._check import one
from hawser.ucp._libs._request import Call, Callback, posted, view_of
from hawser.ucp._libs._transfer import array_for
from hawser.ucp._libs.ucx_api import Feature

from .arr import asarray
from .requests import Outcome, UCXRequest
from .tags import TagProbeResult, number_of

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
    call = Call(operation, Callback(ended or outcome.ended), name, owner=owner)
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
    operation = posted(worker._worker.recv, "tag_recv", view, number_of("tag", tag), number_of("tag_mask", mask))
    return started(worker, operation, "tag_recv", True, owner)


def recv_removed(worker: UCXWorker, arr: Any, probe_result: TagProbeResult) -> UCXRequest:
    message = one("probe_result", probe_result, TagProbeResult)._take()
    array = asarray(arr)
    operation = posted(message.recv, "tag_recv_with_handle", view_of(array, array.nbytes, True))
    return started(worker, operation, "tag_recv_with_handle", False, None)
