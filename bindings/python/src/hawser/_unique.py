"""Objects that stand for one thing of the library."""

from __future__ import annotations

from typing import NoReturn


class Unique:
    """Neither copied nor pickled: with the copy the original's would be closed."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} can be neither copied nor pickled")
