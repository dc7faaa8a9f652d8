"""
The emitters. Each is a module with one function, `emit(abi: Abi) -> dict[str, str]`: the path of each file it makes,
from the root of the output, and the file's text. See docs/guide/bindgen.md.
"""

from __future__ import annotations

from types import ModuleType

from . import python_constants, python_errors

BUILTIN: dict[str, ModuleType] = {
    "python-constants": python_constants,
    "python-errors": python_errors,
}
