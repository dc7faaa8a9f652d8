"""Constants: `#define`s with a plain number, in groups that become enumerations of the bindings."""

from __future__ import annotations

import re

from .doctags import Doc, parse_doc
from .model import Constant, Group
from .report import Problem
from .scanner import Source

_LIMITS = {"UINT64_MAX": 2**64 - 1, "UINT32_MAX": 2**32 - 1, "INT32_MAX": 2**31 - 1, "INT64_MAX": 2**63 - 1}
_NUMBER = re.compile(r"\(?\s*(-?)\s*(0[xX][0-9a-fA-F]+|[0-9]+)([uU]?[lL]{0,2})\s*\)?")
_FIELD = re.compile(r"\bhws_\w+\.(\w+)")
#: Defined by the header for itself.
PRIVATE = ("HWS_API",)


def number(text: str) -> int | None:
    if text in _LIMITS:
        return _LIMITS[text]
    m = _NUMBER.fullmatch(text)
    if m is None or text.count("(") != text.count(")"):
        return None
    value = int(m.group(2), 0)
    return -value if m.group(1) else value


def read_constants(source: Source, problems: list[Problem]) -> tuple[list[Constant], list[Group]]:
    """All constants but the header's own words; runs without an empty line between form a group."""
    runs: list[list[tuple[Constant, int]]] = []
    last_end = -10
    for d in source.directives:
        name, _, value_text = d.rest.partition(" ")
        if d.word != "define" or not value_text or name in PRIVATE:
            continue
        value = number(value_text.strip())
        if "(" in name or value is None:
            problems.append(Problem(source.path, d.line, f"{name}: a constant is a plain number, not `{value_text}`"))
            continue
        doc = source.trailing(d.end_line) or source.trailing(d.line)
        constant = Constant(name, value, _ctype(value), None, doc)
        if not runs or _separated(source, last_end, d.line):
            runs.append([])
        runs[-1].append((constant, d.line))
        last_end = d.end_line
    return _group(source, runs, problems)


def _separated(source: Source, end: int, line: int) -> bool:
    """An empty line or a doc comment between two constants ends a group."""
    return any(
        not source.raw[n - 1].strip() or source.raw[n - 1].lstrip().startswith("/**") for n in range(end + 1, line)
    )


def _ctype(value: int) -> str:
    return "int32_t" if -(2**31) <= value < 2**31 else "uint32_t" if 0 <= value < 2**32 else "uint64_t"


def _group(
    source: Source, runs: list[list[tuple[Constant, int]]], problems: list[Problem]
) -> tuple[list[Constant], list[Group]]:
    constants: list[Constant] = []
    groups: dict[str, Group] = {}
    for run in runs:
        members = [c for c, _ in run]
        line = run[0][1]
        comment = source.doc_before(line)
        doc = Doc(line)
        if comment is not None:
            doc, found = parse_doc(source.path, comment)
            problems += found
        if len(members) == 1 and not members[0].doc:
            members[0].doc = doc.text
        prefix = _prefix([c.name for c in members])
        flags = _is_flags(members, doc)
        if prefix != "HWS_" and (len(members) > 1 or flags) and not prefix.startswith("HWS_E_"):
            name = doc.tags.get("group") or _name(prefix, doc, flags)
            if name in groups:
                problems.append(Problem(source.path, line, f"a second group named {name}: give one of them @group"))
            groups[name] = Group(name, prefix, flags, doc.text, [c.name for c in members])
            for c in members:
                c.group = name
        constants += members
    return constants, list(groups.values())


def _prefix(names: list[str]) -> str:
    if len(names) == 1:
        return names[0].rpartition("_")[0] + "_"
    first, last = min(names), max(names)
    same = next((i for i, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), len(first))
    return first[:same].rpartition("_")[0] + "_"


def _is_flags(members: list[Constant], doc: Doc) -> bool:
    values = [c.value for c in members]
    bits = len(set(values)) == len(values) and all(v > 0 and v & (v - 1) == 0 for v in values)
    said = re.search(r"\bflags\b|\bbits\b", doc.text, re.IGNORECASE) is not None
    return bits and (said or len(values) >= 4)


def _name(prefix: str, doc: Doc, flags: bool) -> str:
    """CamelCase of the prefix, and of the field it is for unless the prefix says that already."""
    name = camel(prefix.removeprefix("HWS_"))
    m = _FIELD.search(doc.brief)
    field = m.group(1) if m else "flags" if flags and re.search(r"\bflags\b", doc.text) else ""
    word = camel(field.removesuffix("s"))
    return name if name.endswith(word) else name + word


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_") if word)
