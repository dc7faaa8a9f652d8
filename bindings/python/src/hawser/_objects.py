"""Python objects as multi-buffer messages: the pickle, then its out-of-band buffers."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any

from . import _errors


def to_buffers(obj: Any) -> list[Any]:
    """The pickle of an object, and the memory of its large parts, which is not copied."""
    parts: list[Any] = [b""]

    def keep(part: pickle.PickleBuffer) -> bool:
        try:
            parts.append(part.raw())
        except BufferError:
            return True  # not contiguous: it goes into the pickle
        return False

    parts[0] = pickle.dumps(obj, protocol=5, buffer_callback=keep)
    return parts


def from_buffers(parts: list[Any]) -> Any:
    """The object again; the parts' memory becomes the object's."""
    return pickle.loads(parts[0], buffers=parts[1:])


def memory_for(segments: Any, first: Callable[[int], Any], others: Callable[[int], Any]) -> list[Any]:
    """Memory for the parts of a message. Where there is none the message goes back: the next receive gets it."""
    try:
        return [(others if i else first)(n) for i, n in enumerate(segments.lengths)]
    except BaseException:
        with contextlib.suppress(_errors.HawserError):
            segments.put_back()
        raise
