"""The exceptions of UCXX, and what those of hawser.ucp and of the library become."""

from __future__ import annotations

import socket

from hawser._errors import ErrorCode, HawserError
from hawser.ucp._libs import exceptions as _ucp


class UCXError(Exception):
    """Base of everything."""


class UCXAlreadyExistsError(UCXError):
    """It is there already."""


class UCXBufferTooSmallError(UCXError):
    """The buffer is too small."""


class UCXBusyError(UCXError):
    """There is work left."""


class UCXCanceledError(UCXError):
    """The operation was cancelled, or its endpoint closed."""


class UCXCloseError(UCXError):
    """The endpoint is closed."""


class UCXConfigError(UCXError):
    """A bad option."""


class UCXConnectionResetError(UCXError):
    """The peer is gone."""


class UCXEndpointTimeoutError(UCXError):
    """The peer stopped answering."""


class UCXExceedsLimitError(UCXError):
    """A limit was reached."""


class UCXFirstEndpointFailureError(UCXError):
    """An endpoint failed."""


class UCXFirstLinkFailureError(UCXError):
    """A link failed."""


class UCXInvalidAddrError(UCXError):
    """Not an address."""


class UCXInvalidParamError(UCXConfigError):
    """An argument, or an option, that UCX does not take."""


class UCXIOError(UCXError):
    """Input or output failed."""


class UCXLastEndpointFailureError(UCXError):
    """An endpoint failed."""


class UCXLastLinkFailureError(UCXError):
    """A link failed."""


class UCXMessageTruncatedError(UCXError):
    """The message was longer than the buffer."""


class UCXNoDeviceError(UCXError):
    """No such device."""


class UCXNoElemError(UCXError):
    """No such element."""


class UCXNoMemoryError(UCXError):
    """Out of memory."""


class UCXNoMessageError(UCXError):
    """No message is there."""


class UCXNoProgressError(UCXError):
    """Nothing to do."""


class UCXNoResourceError(UCXError):
    """Out of resources."""


class UCXNotConnectedError(UCXError):
    """The endpoint is not connected."""


class UCXNotImplementedError(UCXError):
    """UCX does not have it."""


class UCXOutOfRangeError(UCXError):
    """Out of range."""


class UCXRejectedError(UCXError):
    """The peer rejected the connection."""


class UCXShmemSegmentError(UCXError):
    """Shared memory failed."""


class UCXSomeConnectsFailedError(UCXError):
    """Some connections failed."""


class UCXTimedOutError(UCXError):
    """The deadline passed."""


class UCXUnreachableError(UCXError):
    """Nothing reaches the peer."""


class UCXUnsupportedError(UCXError):
    """Not supported."""


UCXCanceled = UCXCanceledError
UCXMsgTruncated = UCXMessageTruncatedError

_BY_CODE: dict[int, type[UCXError]] = {
    ErrorCode.INVALID: UCXInvalidParamError,
    ErrorCode.STALE: UCXCanceledError,
    ErrorCode.CONFIG: UCXInvalidParamError,
    ErrorCode.UNSUPPORTED: UCXUnsupportedError,
    ErrorCode.TOO_BIG: UCXExceedsLimitError,
    ErrorCode.CLOSING: UCXCanceledError,
    ErrorCode.NOT_CONNECTED: UCXNotConnectedError,
    ErrorCode.BUSY: UCXBusyError,
    ErrorCode.IN_USE: UCXAlreadyExistsError,
    ErrorCode.ADDRESS_IN_USE: UCXBusyError,
    ErrorCode.NOT_FOUND: UCXNoElemError,
    ErrorCode.CONNECTION_RESET: UCXConnectionResetError,
    ErrorCode.PEER_CLOSED: UCXCanceledError,
    ErrorCode.TIMED_OUT: UCXTimedOutError,
    ErrorCode.REFUSED: UCXNotConnectedError,
    ErrorCode.REJECTED: UCXRejectedError,
    ErrorCode.UNREACHABLE: UCXUnreachableError,
    ErrorCode.RESOLVE: UCXInvalidAddrError,
    ErrorCode.KEEPALIVE: UCXEndpointTimeoutError,
    ErrorCode.NO_MEMORY: UCXNoMemoryError,
    ErrorCode.NO_RESOURCE: UCXNoResourceError,
    ErrorCode.TOO_MANY: UCXExceedsLimitError,
    ErrorCode.CANCELED: UCXCanceledError,
    ErrorCode.TRUNCATED: UCXMessageTruncatedError,
    ErrorCode.ALLOCATOR: UCXNoMemoryError,
    ErrorCode.NO_DEVICE: UCXNoDeviceError,
    ErrorCode.IO: UCXIOError,
}
_BY_CLASS: tuple[tuple[type[Exception], type[UCXError]], ...] = (
    (_ucp.UCXCanceled, UCXCanceledError),
    (_ucp.UCXConnectionReset, UCXConnectionResetError),
    (_ucp.UCXCloseError, UCXCloseError),
    (_ucp.UCXMsgTruncated, UCXMessageTruncatedError),
    (_ucp.UCXNotConnected, UCXNotConnectedError),
    (_ucp.UCXUnreachable, UCXUnreachableError),
    (_ucp.UCXConfigError, UCXInvalidParamError),
)


def convert(error: Exception) -> Exception:
    """What UCXX raises for an exception of hawser.ucp or of the library; others as they are."""
    if isinstance(error, HawserError):
        return _BY_CODE.get(error.code, UCXError)(error.text)
    if isinstance(error, socket.gaierror):  # as UCX-Py says that there is no such host
        return UCXInvalidAddrError("Invalid IP address or hostname")
    if not isinstance(error, _ucp.UCXBaseException):
        return error
    for theirs, ours in _BY_CLASS:
        if isinstance(error, theirs):
            return ours(str(error))
    cause = error.__cause__
    return (_BY_CODE.get(cause.code, UCXError) if isinstance(cause, HawserError) else UCXError)(str(error))
