"""The exceptions of UCX-Py."""

from ._libs.exceptions import (
    UCXBaseException,
    UCXCanceled,
    UCXCloseError,
    UCXConfigError,
    UCXConnectionReset,
    UCXError,
    UCXMsgTruncated,
    UCXNotConnected,
    UCXUnreachable,
    UCXWarning,
    log_errors,
)

__all__ = [
    "UCXBaseException",
    "UCXCanceled",
    "UCXCloseError",
    "UCXConfigError",
    "UCXConnectionReset",
    "UCXError",
    "UCXMsgTruncated",
    "UCXNotConnected",
    "UCXUnreachable",
    "UCXWarning",
    "log_errors",
]
