"""The synchronous, callback-driven core of UCX-Py over hawser.

Every `*_nb` call takes `cb_func(request, exception, *cb_args, **cb_kwargs)` and returns None if it is
done already, else a UCXRequest. Callbacks run inside UCXWorker.progress(); what they raise is logged.
"""

from ._context import (
    DEFAULT_FEATURES,
    AllocatorType,
    Feature,
    UCXContext,
    get_current_options,
    get_ucx_version,
    is_am_supported,
)
from ._endpoint import UCXEndpoint, check_port, logger, unresolved
from ._listener import UCXListener
from ._memory import PackedRemoteKey, UCXAddress, UCXMemoryHandle
from ._object import UCXObject
from ._remote import UCXIO, RemoteMemory, UCXRkey, get_nb, get_nbi, put_nb, put_nbi
from ._request import UCXRequest, check_length
from ._transfer import am_recv_nb, am_send_nbx, stream_recv_nb, stream_send_nb, tag_recv_nb, tag_send_nb
from ._worker import UCXWorker
from .arr import Array, asarray
from .exceptions import (
    UCXBaseException,
    UCXCanceled,
    UCXCloseError,
    UCXConfigError,
    UCXConnectionReset,
    UCXError,
    UCXMsgTruncated,
    UCXNotConnected,
    UCXUnreachable,
    log_errors,
)
from .utils import get_address, nvtx_annotate

__all__ = [
    "DEFAULT_FEATURES",
    "UCXIO",
    "AllocatorType",
    "Array",
    "Feature",
    "PackedRemoteKey",
    "RemoteMemory",
    "UCXAddress",
    "UCXBaseException",
    "UCXCanceled",
    "UCXCloseError",
    "UCXConfigError",
    "UCXConnectionReset",
    "UCXContext",
    "UCXEndpoint",
    "UCXError",
    "UCXListener",
    "UCXMemoryHandle",
    "UCXMsgTruncated",
    "UCXNotConnected",
    "UCXObject",
    "UCXRequest",
    "UCXRkey",
    "UCXUnreachable",
    "UCXWorker",
    "am_recv_nb",
    "am_send_nbx",
    "asarray",
    "check_length",
    "check_port",
    "get_address",
    "get_current_options",
    "get_nb",
    "get_nbi",
    "get_ucx_version",
    "is_am_supported",
    "log_errors",
    "logger",
    "nvtx_annotate",
    "put_nb",
    "put_nbi",
    "stream_recv_nb",
    "stream_send_nb",
    "tag_recv_nb",
    "tag_send_nb",
    "unresolved",
]
