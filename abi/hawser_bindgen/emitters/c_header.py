"""C: a header without comments, for programs that are built against the description of an earlier release."""

from __future__ import annotations

from ..model import HEADING, Abi
from .ctext import prototype, types

PATH = "hawser.h"


def emit(abi: Abi) -> dict[str, str]:
    return {
        PATH: f"/* The ABI {abi.version}. {HEADING}. */\n"
        "#ifndef HAWSER_H\n#define HAWSER_H\n#include <stddef.h>\n#include <stdint.h>\n"
        + "".join(f"#define {c.name} ({c.value}{'U' if c.value >= 2**31 else ''})\n" for c in abi.constants)
        + types(abi)
        + "".join(prototype(f) + ";\n" for f in abi.functions)
        + "#endif\n"
    }
