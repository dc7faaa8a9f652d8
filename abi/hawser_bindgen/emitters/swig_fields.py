"""C: tables of the structures' fields, by which the SWIG modules turn a dict or a table into a structure and back."""

from __future__ import annotations

import re

from ..model import HEADING, Abi, Field, Struct

PATH = "abi/generated/swig_fields.h"

_NUMBERS = {"uint16_t": "U16", "uint32_t": "U32", "int32_t": "I32", "uint64_t": "U64", "hws_id": "U64"}


def emit(abi: Abi) -> dict[str, str]:
    tables = "\n".join(_table(abi, s) for s in abi.structs)
    details = "".join(
        f"    {{{c.name}, &fields_of_{m.group(1)}}},\n"
        for c in abi.constants
        if c.name.startswith("HWS_EVENT_") and (m := re.search(r"detail: (hws_\w+)", c.doc))
    )
    return {
        PATH: f"/* Fields of the structures. {HEADING}. */\n"
        + '#include "fields.h"\n\n'
        + tables
        + "\n/* Event kind -> what its detail points to. */\n"
        + f"static const struct detail details[] = {{\n{details}    {{0, NULL}},\n}};\n"
    }


def _table(abi: Abi, s: Struct) -> str:
    rows = "".join(f"    {row},\n" for row in _rows(abi, s))
    return (
        f"static const struct field fields_of_{s.name}_[] = {{\n{rows}    {{NULL, 0, 0, 0, NULL}},\n}};\n"
        f"static const struct fields fields_of_{s.name} = "
        f'{{"{s.name}", sizeof({s.name}), {int(s.sized)}, fields_of_{s.name}_}};\n'
    )


def _rows(abi: Abi, s: Struct) -> list[str]:
    rows: list[str] = []
    counts = {c.name for f in s.fields if (c := count_of(s, f)) is not None}
    for f in s.fields:
        kind = kind_of(abi, s, f)
        if kind is None or f.name in counts:
            continue
        count = count_of(s, f)
        extra = str(f.array or 0) if count is None else f"offsetof({s.name}, {count.name})"
        sub = f"&fields_of_{f.type.base}" if kind in ("RECORD", "RECORDS") else "NULL"
        rows.append(f'{{"{f.name}", FIELD_{kind}, offsetof({s.name}, {f.name}), {extra}, {sub}}}')
    return rows


def count_of(s: Struct, f: Field) -> Field | None:
    """The field that counts what a pointer points to."""
    if f.type.pointers != 1 or f.type.base == "char":
        return None
    lengths = [f"{f.name}_length"] + (["length"] if f.name == "data" else [])
    names = lengths if f.type.base == "void" else [f"{f.name}_count", "count"]
    if f.type.base == "uint64_t":
        names.append(f.name.partition("_")[0] + "_words")
    return next((c for c in s.fields if c.name in names and c.type.pointers == 0), None)


def kind_of(abi: Abi, s: Struct, f: Field) -> str | None:
    """How a field is converted; None for what a SWIG module does not show: callbacks and what belongs to them."""
    if abi.callback(f.type.base) is not None or f.name.endswith("_arg") or f.name == "reserved":
        return None
    if f.type.base == "char":
        return "CHARS" if f.array else "TEXT" if f.type.pointers == 1 else "STRINGS"
    if f.array and f.type.base == "uint64_t":
        return "LIST"
    if f.type.pointers == 0:
        return "RECORD" if abi.struct(f.type.base) else _NUMBERS[f.type.base]
    if s.name == "hws_event" and f.name == "detail":
        return "DETAIL"
    if (s.name, f.name) == ("hws_segment", "base"):
        return "SEGMENT"
    if f.type.base == "hws_event":
        return "RESULT"
    counted = count_of(s, f) is not None
    if f.type.base == "void":
        return "BYTES" if counted else "ADDRESS"
    return ("RECORDS" if abi.struct(f.type.base) else "WORDS") if counted else None
