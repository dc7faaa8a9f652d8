"""Sizes and offsets on the 64-bit targets: computed here, proven by the layout probe that a C compiler reads."""

from __future__ import annotations

from .model import Struct, Type

POINTER = 8
SCALARS = {
    "char": 1, "int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int32_t": 4, "uint32_t": 4,
    "int64_t": 8, "uint64_t": 8, "hws_id": 8,
}  # fmt: skip


def size_align(kind: Type, structs: dict[str, Struct], callbacks: set[str]) -> tuple[int, int] | None:
    """Size and alignment of a type, or None if it is not known here."""
    if kind.pointers or kind.base in callbacks:
        return POINTER, POINTER
    if kind.base in SCALARS:
        return SCALARS[kind.base], SCALARS[kind.base]
    if kind.base in structs:
        return structs[kind.base].size, structs[kind.base].align
    return None
