"""What is wrong with an argument is said by its name, and before anything is done with it."""

from __future__ import annotations

import math
from collections.abc import ItemsView, Iterable, Mapping
from operator import index
from typing import Any, TypeVar

from . import _core

K = TypeVar("K")
T = TypeVar("T")


def _wrong(name: str, needed: str, value: object) -> TypeError:
    return TypeError(f"{name}: {needed} is needed, not {type(value).__name__}")


def one(name: str, value: Any, kind: type[T]) -> T:
    """An object of a class."""
    if not isinstance(value, kind):
        raise _wrong(name, f"a {kind.__name__}", value)
    return value


def mapping(name: str, value: Mapping[K, T]) -> ItemsView[K, T]:
    """The keys and values of a dict or its like."""
    if not isinstance(value, Mapping):
        raise _wrong(name, "a dict", value)
    return value.items()


def function(name: str, value: T) -> T:
    """What can be called."""
    if not callable(value):
        raise _wrong(name, "a function", value)
    return value


def integer(name: str, value: Any) -> int:
    """An int, or what stands for one."""
    try:
        return index(value)
    except TypeError:
        raise _wrong(name, "an int", value) from None


def count(name: str, value: Any) -> int:
    """An int that is not negative."""
    number = integer(name, value)
    if number < 0:
        raise ValueError(f"{name}: {number} is negative")
    return number


def seconds(name: str, value: Any) -> float:
    """A number of seconds; infinity is one."""
    try:
        number = float(value) if not isinstance(value, (str, bytes, bytearray)) else None
    except (TypeError, OverflowError):
        number = math.inf if isinstance(value, int) and value > 0 else None
    if number is None:
        raise _wrong(name, "a number of seconds", value)
    if math.isnan(number):
        raise ValueError(f"{name}: {value!r} is no number of seconds")
    return number


def octets(name: str, value: Any) -> bytes:
    """The bytes of a bytes-like object. Of an int bytes() makes as many zeros, of Python objects their addresses."""
    if isinstance(value, bytes):
        return value
    try:
        if hasattr(value, "__bytes__"):
            return bytes(value)
        _core.memory(value)  # which refuses what holds Python objects, or has gaps
        return bytes(memoryview(value))
    except (TypeError, BufferError):
        raise _wrong(name, "a bytes-like object", value) from None


def each(name: str, values: Iterable[T]) -> Iterable[T]:
    """What a loop takes."""
    try:
        return iter(values)
    except TypeError:
        raise _wrong(name, "an iterable", values) from None
