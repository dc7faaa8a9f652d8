"""
The emitters. Each is a module with one function, `emit(abi: Abi) -> dict[str, str]`: the path of each file it makes,
from the root of the output, and the file's text. See docs/guide/bindgen.md.
"""

from __future__ import annotations

from types import ModuleType

from . import (
    c_layout,
    luajit_cdef,
    man_pages,
    python_constants,
    python_errors,
    reference,
    rust_calls,
    rust_extern,
    swig_fields,
    swig_lua,
    swig_python,
    symbol_map,
    vectors,
)

BUILTIN: dict[str, ModuleType] = {
    "c-layout": c_layout,
    "luajit-cdef": luajit_cdef,
    "man-pages": man_pages,
    "python-constants": python_constants,
    "python-errors": python_errors,
    "reference": reference,
    "rust-calls": rust_calls,
    "rust-extern": rust_extern,
    "swig-fields": swig_fields,
    "swig-lua": swig_lua,
    "swig-python": swig_python,
    "symbol-map": symbol_map,
    "vectors": vectors,
}
