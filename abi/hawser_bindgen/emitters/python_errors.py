"""Python: the codes as an IntEnum, and an exception class for each."""

from __future__ import annotations

import builtins

from ..constants import camel
from ..model import Abi, Error
from .text import all_list, heading

PATH = "bindings/python/src/hawser/_errors.py"

#: What Python's own code would expect to catch; a category's first, a code's own where it says more.
_CATEGORY_BASE = {"peer": "ConnectionError"}
_BASE = {
    "INVALID": "ValueError",
    "BAD_ID": "ValueError",
    "KIND": "TypeError",
    "FORKED": "RuntimeError",
    "NEWER": "ValueError",
    "DEADLOCK": "RuntimeError",
    "CONFIG": "ValueError",
    "UNSUPPORTED": "NotImplementedError",
    "BUFFER_KIND": "TypeError",
    "TOO_BIG": "ValueError",
    "NOT_CONNECTED": "ConnectionError",
    "ADDRESS_IN_USE": "OSError",
    "NOT_FOUND": "LookupError",
    "CONNECTION_RESET": "ConnectionResetError",
    "TIMED_OUT": "TimeoutError",
    "REFUSED": "ConnectionRefusedError",
    "REJECTED": "ConnectionRefusedError",
    "AUTH": "ConnectionRefusedError",
    "PEER_VERSION": "ConnectionRefusedError",
    "NO_MEMORY": "MemoryError",
    "IO": "OSError",
    "SYSTEM": "OSError",
}

#: What the system calls the same, for programs that look at an OSError's errno.
_ERRNO = {
    "NOT_CONNECTED": "ENOTCONN",
    "ADDRESS_IN_USE": "EADDRINUSE",
    "CONNECTION_RESET": "ECONNRESET",
    "PEER_CLOSED": "EPIPE",
    "TIMED_OUT": "ETIMEDOUT",
    "REFUSED": "ECONNREFUSED",
    "REJECTED": "ECONNREFUSED",
    "UNREACHABLE": "EHOSTUNREACH",
    "PROTOCOL": "EPROTO",
    "KEEPALIVE": "ETIMEDOUT",
}

_BODY = '''
from __future__ import annotations

import errno as _system
from enum import IntEnum


class ErrorCode(IntEnum):
    """The codes of the ABI, without HWS_E_."""

{codes}

class HawserError(Exception):
    """
    A call or an operation failed.

    `code` is one of ErrorCode, `name` its name, `text` says what happened in one line; `ucx_status` is UCX's, 0 if it
    was not involved, `errno` the system's, or the one that means the same as the code, else 0; `id` names the object,
    0 if there is none; `length` is that of the message, in bytes, where an operation's buffer was too short. Each code
    has a class of its own, which is also a built-in exception where one means the same.
    """

    code: int = 0
    name: str = "UNKNOWN"
    category: str = ""
    _errno: int = 0
    text: str
    ucx_status: int
    errno: int | None
    id: int
    length: int = 0

    def __init__(
        self,
        code: int | str | None = None,
        name: str | None = None,
        text: str | None = None,
        ucx_status: int = 0,
        errno: int = 0,
        id: int = 0,
    ) -> None:
        if isinstance(code, str):  # the text alone, as for other exceptions
            code, text = None, code
        self.code = type(self).code if code is None else code
        self.name = type(self).name if name is None else name
        self.text = TEXTS.get(self.code, "unknown error") if text is None else text
        super().__init__(self.text)
        self.ucx_status = ucx_status
        self.errno = errno or self._errno
        self.id = id

    def __str__(self) -> str:
        return f"{{self.name}}: {{self.text}}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.name, self.text, self.ucx_status, self.errno or 0, self.id)

{classes}
#: Code -> class.
CLASSES: dict[int, type[HawserError]] = {{
{table}}}

#: Code -> what it means.
TEXTS: dict[int, str] = {{
{texts}}}


def from_code(code: int, text: str | None = None, ucx_status: int = 0, errno: int = 0, id: int = 0) -> HawserError:
    """The exception for a code; a plain HawserError for one that is not known here."""
    return CLASSES.get(code, HawserError)(code, None, text, ucx_status, errno, id)


{names}'''


def class_name(error: Error) -> str:
    """TIMED_OUT -> TimedOutError; a name that a built-in exception has gets Hawser in front."""
    name = camel(error.name) + "Error"
    return "Hawser" + name if hasattr(builtins, name) else name


def emit(abi: Abi) -> dict[str, str]:
    body = _BODY.format(
        codes="".join(f"    {e.name} = {e.code}  # {e.text}\n" for e in abi.errors),
        classes="".join(_class(e) for e in abi.errors),
        table="".join(f"    {e.code}: {class_name(e)},\n" for e in abi.errors),
        texts="".join(f'    {e.code}: "{e.text}",\n' for e in abi.errors),
        names=all_list(["CLASSES", "TEXTS", "ErrorCode", "HawserError", "from_code", *map(class_name, abi.errors)]),
    )
    return {PATH: heading("#", "The exceptions of the ABI.") + body}


def _class(error: Error) -> str:
    base = _BASE.get(error.name) or _CATEGORY_BASE.get(error.category)
    bases = f"HawserError, {base}" if base else "HawserError"
    number = f"    _errno = _system.{_ERRNO[error.name]}\n" if error.name in _ERRNO else ""
    return (
        f"\nclass {class_name(error)}({bases}):\n"
        f'    """{error.text[0].upper()}{error.text[1:]}."""\n\n'
        f"    code = {error.code}\n"
        f'    name = "{error.name}"\n'
        f'    category = "{error.category}"\n{number}\n'
    )
