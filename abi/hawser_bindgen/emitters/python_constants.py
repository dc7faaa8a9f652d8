"""Python: an IntEnum or IntFlag for each group of constants, and the single constants."""

from __future__ import annotations

from ..model import Abi, Constant, Group
from .text import all_list, docstring, heading

PATH = "bindings/python/src/hawser/_constants.py"


def emit(abi: Abi) -> dict[str, str]:
    out = [
        heading("#", "The constants of the ABI."),
        "\nfrom __future__ import annotations\n\nfrom enum import IntEnum, IntFlag\n\n",
        f'HEADER_VERSION = "{abi.version}"\n',
    ]
    for c in abi.constants:
        if c.group is None and not c.name.startswith("HWS_E_"):
            out.append(f"{c.name.removeprefix('HWS_')} = {c.value}\n")
    for group in abi.groups:
        out.append(_enum(abi, group))
    names = [c.name.removeprefix("HWS_") for c in abi.constants if c.group is None and not c.name.startswith("HWS_E_")]
    names += [g.name for g in abi.groups] + ["HEADER_VERSION"]
    out.append("\n\n" + all_list(names))
    return {PATH: "".join(out)}


def _enum(abi: Abi, group: Group) -> str:
    members = [abi.constant(name) for name in group.members]
    base = "IntFlag" if group.flags else "IntEnum"
    body = "".join(_member(c, group.prefix) for c in members)
    return f"\n\nclass {group.name}({base}):\n{docstring(group.doc or f'{group.prefix}*', '    ')}\n{body}"


def _member(c: Constant, prefix: str) -> str:
    text = f"    {c.name.removeprefix(prefix)} = {c.value}\n"
    if not c.doc:
        return text
    if len(text) + len(c.doc) < 116:
        return f"{text[:-1]}  # {c.doc}\n"
    return text + docstring(c.doc, "    ")
