"""The exceptions of UCX-Py, and what errors of the library become."""

import contextlib
import logging
from collections.abc import Iterator

from hawser._errors import ErrorCode, HawserError

logger = logging.getLogger("ucx")


class UCXBaseException(Exception):
    """Base of everything."""


class UCXError(UCXBaseException):
    """Any failure without a class of its own."""


class UCXConfigError(UCXError):
    """A bad option."""


class UCXWarning(UserWarning):
    """A warning."""


class UCXCloseError(UCXBaseException):
    """The endpoint is closed."""


class UCXCanceled(UCXBaseException):
    """The operation was cancelled, or its endpoint closed."""


class UCXConnectionReset(UCXBaseException):
    """The peer is gone."""


class UCXPeerLost(UCXConnectionReset, UCXError):
    """A peer by worker address is gone.

    UCX tells of a reset or of a timeout, as the transport has it, and UCX-Py has a class for one of
    them only: programs that handle either are served.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name}: Endpoint timeout or Connection reset by remote peer")


class UCXMsgTruncated(UCXBaseException):
    """The message was shorter than what was asked for."""


class UCXNotConnected(UCXBaseException):
    """The endpoint is not connected."""


class UCXUnreachable(UCXBaseException):
    """Nothing reaches the peer."""


# How a peer is lost that never said goodbye.
LOST = (ErrorCode.PEER_CLOSED, ErrorCode.CONNECTION_RESET, ErrorCode.KEEPALIVE)

# What each failure is in UCX-Py, and its words; without any the library's own are told.
_CLASSES: dict[int, tuple[type[UCXBaseException], str | None]] = {
    ErrorCode.CANCELED: (UCXCanceled, "Request canceled"),
    ErrorCode.PEER_CLOSED: (UCXCanceled, "Request canceled"),
    ErrorCode.STALE: (UCXCanceled, "Request canceled"),
    ErrorCode.CLOSING: (UCXCanceled, "Request canceled"),
    ErrorCode.CONNECTION_RESET: (UCXConnectionReset, "Connection reset by remote peer"),
    ErrorCode.KEEPALIVE: (UCXConnectionReset, "Endpoint timeout"),
    ErrorCode.NOT_CONNECTED: (UCXNotConnected, "Endpoint is not connected"),
    ErrorCode.REFUSED: (UCXNotConnected, "Connection refused"),
    ErrorCode.REJECTED: (UCXError, "Request rejected"),
    ErrorCode.UNREACHABLE: (UCXUnreachable, "Destination is unreachable"),
    ErrorCode.TRUNCATED: (UCXError, "Message truncated"),
    ErrorCode.CONFIG: (UCXConfigError, None),
}


def translate(error: HawserError, name: str = "") -> UCXBaseException:
    """What UCX-Py raises where the library raises `error`; `name` tells what was tried."""
    kind, words = _CLASSES.get(error.code, (UCXError, None))
    text = words or error.text
    result = kind(f"<{name}>: {text}" if name else text)
    result.__cause__ = error
    return result


def translate_receive(error: HawserError, name: str) -> UCXBaseException:
    """As translate(), for a receive that waited: UCX-Py cancels what waits for a peer that fails."""
    if error.code in (ErrorCode.CONNECTION_RESET, ErrorCode.KEEPALIVE):
        return UCXCanceled(f"<{name}>: Request canceled")
    return translate(error, name)


def too_short(name: str, got: int, expected: int) -> UCXMsgTruncated:
    """In UCX-Py a message that is shorter than the buffer is an error."""
    return UCXMsgTruncated(f"<{name}>: length mismatch: {got} (got) != {expected} (expected)")


def check_short(name: str, got: int, expected: int) -> None:
    """Raise it if the message is."""
    if got != expected:
        raise too_short(name, got, expected)


@contextlib.contextmanager
def log_errors(reraise_exception: bool = False) -> Iterator[None]:
    """Log what is raised inside, and raise it again only if asked to."""
    try:
        yield
    except BaseException as e:
        logger.exception(e)
        if reraise_exception:
            raise


__all__ = [
    "LOST",
    "ErrorCode",
    "HawserError",
    "UCXBaseException",
    "UCXCanceled",
    "UCXCloseError",
    "UCXConfigError",
    "UCXConnectionReset",
    "UCXError",
    "UCXMsgTruncated",
    "UCXNotConnected",
    "UCXPeerLost",
    "UCXUnreachable",
    "UCXWarning",
    "check_short",
    "log_errors",
    "too_short",
    "translate",
    "translate_receive",
]
