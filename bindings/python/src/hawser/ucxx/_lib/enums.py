"""Numbers that UCXX gives names to."""

import enum


class PythonRequestNotifierWaitState(enum.Enum):
    """What waiting for notifications came to."""

    Ready = 0
    Timeout = 1
    Shutdown = 2


class PythonAmSendMemoryTypePolicy(enum.Enum):
    """What becomes of a kind of memory that the receiver has no allocator for."""

    FallbackToHost = 0
    ErrorOnUnsupported = 1
