"""Markdown: the reference tables in docs/reference."""

from __future__ import annotations

from ..model import HEADING, Abi, Arg, Function
from .ctext import prototype

FOLDER = "docs/reference"
_HEAD = f"<!-- {HEADING}. -->\n"


def emit(abi: Abi) -> dict[str, str]:
    return {
        f"{FOLDER}/functions.md": _functions(abi),
        f"{FOLDER}/structures.md": _structures(abi),
        f"{FOLDER}/constants.md": _constants(abi),
        f"{FOLDER}/errors.md": _errors(abi),
    }


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;") or " "


def table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    lines += [f"| {' | '.join(cell(c) if not c.startswith('`') else c for c in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _functions(abi: Abi) -> str:
    parts = [
        _HEAD,
        f"# Functions\n\n{len(abi.functions)} functions, in the header's order. Each has a man page (section 3).\n",
    ]
    for section in abi.sections:
        functions = [f for f in abi.functions if f.section == section.name]
        if not functions:
            continue
        parts.append(f"## {section.name}\n")
        parts.append(
            table(
                ["function", "does", "thread", "blocks", "since", "UCX"],
                [
                    [f"[`{f.name}`](#{f.name})", f.brief, f.thread, f.blocks, f.since, ", ".join(f.ucx)]
                    for f in functions
                ],
            )
        )
    for f in abi.functions:
        parts.append(_function(f))
    return "\n".join(parts)


def _function(f: Function) -> str:
    text = f"### {f.name}\n\n```c\n{prototype(f)};\n```\n\n{cell(f.doc)}\n"
    if f.args:
        text += "\n" + table(["argument", "is", "note"], [[f"`{a.name}`", kind(a), a.doc] for a in f.args])
    if f.return_doc:
        text += f"\nReturns {cell(f.return_doc)}.\n"
    return text + f"\nThread: {f.thread}. Blocks: {cell(f.blocks)}. Memory: {cell(f.owns)}. Since {f.since}.\n"


def kind(a: Arg) -> str:
    """What an argument is, in words."""
    words = {
        "value": a.type.c,
        "id": " or ".join(a.kinds) or "any id",
        "text": "text",
        "options": a.type.base,
        "info": a.type.base + ", filled",
        "buffer": f"memory, {a.length} {a.unit}" if a.length else "memory",
        "array": f"{a.length} {a.type.base}" + ("" if a.direction == "in" else ", filled"),
        "struct": a.type.base + ("" if a.direction == "in" else ", filled"),
        "out": f"{a.type.base}, filled",
        "callback": a.type.c,
        "user": "passed through",
    }
    word = "" if a.role == "id" and a.doc.startswith(words["id"]) else words[a.role]
    return word + (", nullable" if a.nullable and "nullable" not in a.doc and a.role != "user" else "")


def _structures(abi: Abi) -> str:
    parts = [_HEAD, "# Structures\n\nSizes and offsets in bytes, the same on every supported machine.\n"]
    for s in abi.structs:
        parts.append(f"## {s.name}\n\n{s.size} bytes. {cell(s.doc)}\n")
        rows = [[str(f.offset), f"`{f.name}`", f.type.c + (f"[{f.array}]" if f.array else ""), f.doc] for f in s.fields]
        parts.append(table(["offset", "field", "type", "note"], rows))
    for c in abi.callbacks:
        args = ", ".join(a.type.c + " " + a.name for a in c.args)
        parts.append(f"## {c.name}\n\n```c\n{c.returns.c} (*{c.name})({args});\n```\n\n{cell(c.doc)}\n")
    return "\n".join(parts)


def _constants(abi: Abi) -> str:
    parts = [_HEAD, "# Constants\n"]
    for group in abi.groups:
        members = [abi.constant(name) for name in group.members]
        what = "Bits. " if group.flags else ""
        parts.append(f"## {group.name}\n\n{what}{cell(group.doc)}\n")
        parts.append(table(["constant", "value", "note"], [[f"`{c.name}`", str(c.value), c.doc] for c in members]))
    single = [c for c in abi.constants if c.group is None and not c.name.startswith("HWS_E_")]
    parts.append("## Others\n")
    parts.append(table(["constant", "value", "note"], [[f"`{c.name}`", str(c.value), c.doc] for c in single]))
    return "\n".join(parts)


def _errors(abi: Abi) -> str:
    rows = [[f"`HWS_E_{e.name}`", str(e.code), e.category, e.text, e.ucx or ""] for e in abi.errors]
    heads = ["code", "number", "category", "text", "UCX status"]
    return f"{_HEAD}\n# Errors\n\nNumbers never change.\n\n{table(heads, rows)}"
