"""What each argument of a function is for, from its type, its name and what the comment says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .doctags import Param
from .layout import SCALARS
from .model import Arg, Struct, Type

_COUNTS = {"length": "bytes", "size": "bytes", "count": "entries"}
_USER = re.compile(r"(.*_)?(arg|user)")
_NULLABLE = re.compile(r"\bnullable\b|\bor null\b|\bnull:")


@dataclass
class World:
    """What the header has declared so far."""

    structs: dict[str, Struct]
    callbacks: set[str]
    kinds: list[str]


def describe(names: list[str], types: list[Type], docs: dict[str, Param], world: World) -> tuple[list[Arg], list[str]]:
    """The arguments, and the reasons why one of them cannot be described."""
    args: list[Arg] = []
    reasons: list[str] = []
    for i, (name, kind) in enumerate(zip(names, types, strict=True)):
        doc = docs.get(name, Param(None, ""))
        length, unit = _length(i, names, types, doc.text)
        role = _role(name, kind, length, doc, world)
        if role is None:
            reasons.append(f"`{kind.c} {name}`: this shape of argument is not in the dialect")
            continue
        nullable = kind_is_pointer(kind, world) and (
            _NULLABLE.search(doc.text) is not None or role in ("options", "user") or _is_op(i, names, role)
        )
        kinds: list[str] = []
        if role == "id":
            found = _kinds(name, doc.text, world.kinds)
            if found is None:
                reasons.append(f"`{name}`: which kinds? Begin its @param with them, such as 'endpoint or worker'")
            kinds = found or []
        if role not in ("buffer", "array"):
            length = unit = None
        args.append(Arg(name, kind, role, _direction(kind, role, doc), nullable, kinds, length, unit, doc.text))
    reasons += [f"@param {name}: there is no such argument" for name in docs if name not in names]
    return args, reasons


def _is_op(i: int, names: list[str], role: str) -> bool:
    """The id of a posted operation: whoever names a sink in the options does not need it."""
    return role == "out" and names[i] == "op" and i == len(names) - 1


def kind_is_pointer(kind: Type, world: World) -> bool:
    return kind.pointers > 0 or kind.base in world.callbacks


def _length(i: int, names: list[str], types: list[Type], doc: str) -> tuple[str | None, str | None]:
    """The count of a pointer: named in its comment, or the number that follows it."""
    if types[i].pointers != 1:
        return None, None
    m = re.search(r"(?:array of|room for) `(\w+)`|`(\w+)` bytes", doc)
    candidates = [m.group(1) or m.group(2)] if m else []
    if i + 1 < len(names) and types[i + 1].pointers == 0:
        candidates.append(names[i + 1])
    for name in candidates:
        word = name.removeprefix(names[i] + "_")
        if word in _COUNTS and name in names:
            return name, "bytes" if types[i].base in ("void", "char", "uint8_t") else "entries"
    return None, None


def _role(name: str, kind: Type, length: str | None, doc: Param, world: World) -> str | None:
    if kind.base in world.callbacks:
        return None if kind.pointers else "callback"
    if kind.pointers == 0:
        return "id" if kind.base == "hws_id" else "value" if kind.base in SCALARS else None
    if kind.pointers == 1:
        return _pointer_role(name, kind, length, doc, world)
    # void **: a pointer that the library gives.
    return "out" if kind.pointers == 2 and not kind.const else None


def _pointer_role(name: str, kind: Type, length: str | None, doc: Param, world: World) -> str | None:
    if kind.base == "void":
        if _USER.fullmatch(name):
            return "user"
        return "buffer" if length or doc.direction else None
    if kind.base == "char" and kind.const:
        return "text"
    if length:
        return "buffer" if kind.base == "char" else "array"
    if kind.base in world.structs:
        if world.structs[kind.base].sized:
            return "options" if kind.const else "info"
        return "struct"
    return "out" if kind.base in SCALARS and not kind.const else None


def _direction(kind: Type, role: str, doc: Param) -> str:
    if role == "info":
        return "inout"  # its struct_size is read
    if doc.direction:
        return doc.direction
    return "in" if kind.const or kind.pointers == 0 or role in ("user", "callback") else "out"


def _kinds(name: str, doc: str, known: list[str]) -> list[str] | None:
    """Kinds at the start of the comment ("endpoint or worker"), else the name itself; `id` alone is any kind."""
    found = []
    for word in re.findall(r"\w+|[^\w\s]", doc):
        if word in known and word not in found:
            found.append(word)
        elif word not in ("or", "a", "an", ","):
            break
    if found:
        return found
    bare = name.removesuffix("_id")
    if bare in known:
        return [bare]
    return [] if name == "id" else None
