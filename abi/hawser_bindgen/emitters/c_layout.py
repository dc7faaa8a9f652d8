"""C: assertions that the header says what the description says; a compiler that accepts the file has proven it."""

from __future__ import annotations

from ..model import HEADING, Abi
from .ctext import prototype

PATH = "abi/generated/layout.c"


def emit(abi: Abi) -> dict[str, str]:
    lines = [
        f"/* Sizes, offsets, constants and prototypes of the ABI. {HEADING}. */",
        "#include <hawser.h>",
        "",
        "#define SAME(a, b) _Static_assert((a) == (b), #a)",
        "",
    ]
    for s in abi.structs:
        lines.append(f"SAME(sizeof({s.name}), {s.size});")
        lines.append(f"SAME(_Alignof({s.name}), {s.align});")
        for f in s.fields:
            lines.append(f"SAME(offsetof({s.name}, {f.name}), {f.offset});")
            lines.append(f"SAME(sizeof((({s.name} *)0)->{f.name}), {f.size});")
    lines.append("")
    lines += [f"SAME({c.name}, {c.value}{'U' if c.value > 2**31 else ''});" for c in abi.constants]
    lines += ["", "/* Declared once more: a different prototype is an error. */"]
    lines += [prototype(f) + ";" for f in abi.functions]
    lines += ["", "/* Something to find: a source without any definition is not C. */", "int hws__layout_is_proven;"]
    return {PATH: "\n".join(lines) + "\n"}
