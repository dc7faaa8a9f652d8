"""Tags, masks, and what probing for a tag found."""

from __future__ import annotations

from typing import Any

_ALL = (1 << 64) - 1


class _Number:
    """An unsigned number of 64 bits with a name of its own."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        if not hasattr(value, "__index__") and not hasattr(value, "__int__"):  # int() takes strings, too
            raise TypeError(f"an integer is required, not {type(value).__name__}")
        number = int(value)
        if not 0 <= number <= _ALL:
            raise OverflowError(f"{number} is no unsigned number of 64 bits")
        self._value = number

    @property
    def value(self) -> int:
        """The number."""
        return self._value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self._value == other
        return type(other) is type(self) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __int__(self) -> int:
        return self._value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


def number_of(name: str, value: Any) -> int:
    """That of a tag or mask, or of what stands for one. Raises TypeError, OverflowError, ValueError."""
    try:
        return (value if isinstance(value, _Number) else _Number(value)).value
    except (TypeError, OverflowError, ValueError) as e:
        raise type(e)(f"{name}: {e}") from None


class UCXXTag(_Number):
    """A tag."""


class UCXXTagMask(_Number):
    """Which bits of a tag count."""


UCXXTagMaskFull = UCXXTagMask(_ALL)


class TagProbeResult:
    """Whether a message is there, and which. What is not there has no further attributes."""

    def __init__(self, found: Any, removed: bool) -> None:
        self._found = found
        self._removed = removed

    @property
    def matched(self) -> bool:
        """Whether it is there."""
        return self._found is not None

    def _message(self) -> Any:
        if self._found is None:
            raise AttributeError("No message was matched")
        return self._found

    @property
    def sender_tag(self) -> UCXXTag:
        """Its tag."""
        return UCXXTag(self._message().tag)

    @property
    def length(self) -> int:
        """Its length in bytes."""
        return int(self._message().length)

    @property
    def handle(self) -> int | None:
        """A number that names it, if it was removed and is not received yet."""
        message = self._message()
        return message._id or None if self._removed else None

    def _take(self) -> Any:
        if self._found is None:
            raise ValueError("the TagProbeResult has matched no message")
        if self.handle is None:
            raise RuntimeError(f"the message was {'received already' if self._removed else 'not removed'}")
        return self._found

    def __bool__(self) -> bool:
        return self.matched

    def __repr__(self) -> str:
        if not self.matched:
            return "TagProbeResult(matched=False)"
        what = f"sender_tag={self.sender_tag}, length={self.length}, handle={self.handle}"
        return f"TagProbeResult(matched=True, {what})"
