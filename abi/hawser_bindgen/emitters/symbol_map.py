"""The linker's version script: one node for each release that added functions."""

from __future__ import annotations

from ..model import HEADING, Abi

PATH = "abi/generated/hawser.map"


def emit(abi: Abi) -> dict[str, str]:
    releases = sorted({f.since for f in abi.functions}, key=lambda v: [int(n) for n in v.split(".")])
    nodes = []
    for i, release in enumerate(releases):
        names = "".join(f"        {name};\n" for name in sorted(f.name for f in abi.functions if f.since == release))
        local = "    local:\n        *;\n" if i == 0 else ""
        base = "" if i == 0 else f" HAWSER_{releases[i - 1]}"
        nodes.append(f"HAWSER_{release} {{\n    global:\n{names}{local}}}{base};\n")
    return {PATH: f"/* What the library exports. {HEADING}. */\n" + "\n".join(nodes)}
