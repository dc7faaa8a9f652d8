"""Raising UCXX's exceptions instead of UCX-Py's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..exceptions import convert


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Raises UCXX's exceptions instead of UCX-Py's."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as e:
            theirs = convert(e)
            if theirs is e:
                raise
            raise theirs from e

    return call
