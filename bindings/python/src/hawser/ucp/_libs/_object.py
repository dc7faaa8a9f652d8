"""What is closed once, with all that was made of it."""

from __future__ import annotations

import contextlib
import weakref

from hawser._unique import Unique


class UCXObject(Unique):
    """Something that is closed once; closing it closes its children first."""

    _patience = 5.0  # how long closing may wait for peers, in seconds

    def __init__(self) -> None:
        self._closed = False
        self._children: weakref.WeakSet[UCXObject] = weakref.WeakSet()

    @property
    def initialized(self) -> bool:
        return not self._closed

    def _assert_initialized(self) -> None:
        """As the Cython classes that UCX-Py's programs know, also with -O."""
        if self._closed:
            raise AssertionError(f"the {type(self).__name__} is closed")

    def add_child(self, child: UCXObject) -> None:
        """Close `child` before this."""
        self._children.add(child)

    def close(self) -> None:
        """Close it; again is allowed."""
        if self._closed:
            return
        for child in list(self._children):
            child.close()
        self._closed = True
        self._finalize()

    def _finalize(self) -> None:
        """Give back what it holds; called once."""

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._patience = 0.05  # who forgot it did not mean to wait
            with contextlib.suppress(Exception):
                self.close()
