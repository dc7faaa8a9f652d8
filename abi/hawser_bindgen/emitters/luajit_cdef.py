"""LuaJIT: the text for ffi.cdef, the constants, and the layout to be checked when it is loaded."""

from __future__ import annotations

from ..model import Abi
from .ctext import prototype, types
from .text import heading

PATH = "bindings/lua/hawser/cdef.lua"


def emit(abi: Abi) -> dict[str, str]:
    text = types(abi) + "".join(prototype(f) + ";\n" for f in abi.functions)
    constants = "".join(
        f"    {c.name.removeprefix('HWS_')} = {_number(c.value)},\n"
        for c in abi.constants
        if not c.name.startswith("HWS_E_")
    )
    errors = "".join(f'    [{e.code}] = "{e.name}",\n' for e in abi.errors)
    layout = "".join(
        f"    {s.name} = {{size = {s.size}, fields = {{"
        + ", ".join(f"{f.name} = {f.offset}" for f in s.fields)
        + "}},\n"
        for s in abi.structs
    )
    functions = "".join(f'    "{f.name}",\n' for f in abi.functions)
    return {
        PATH: heading("--", "The ABI for LuaJIT's ffi.")
        + f'local M = {{abi_version = {abi.abi_version}, version = "{abi.version}"}}\n'
        + f"\nM.cdef = [[\n{text}]]\n"
        + f"\nM.constants = {{\n{constants}}}\n"
        + f"\n-- Code -> name.\nM.errors = {{\n{errors}}}\n"
        + f"\n-- Sizes and offsets as every other binding has them.\nM.layout = {{\n{layout}}}\n"
        + f"\nM.functions = {{\n{functions}}}\n"
        + "\nreturn M\n"
    }


def _number(value: int) -> str:
    """Beyond 2^53 a plain number of LuaJIT would be another one."""
    return f"{value}ULL" if value >= 2**53 else str(value)
