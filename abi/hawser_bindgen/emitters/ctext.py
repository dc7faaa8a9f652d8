"""C text of declarations, for the emitters whose language speaks C."""

from __future__ import annotations

from ..model import Abi, Arg, Callback, Field, Function, Struct, Type


def declare(kind: Type, name: str) -> str:
    """`type name`, the asterisk at the name."""
    return f"{kind.c}{name}" if kind.c.endswith("*") else f"{kind.c} {name}"


def arguments(args: list[Arg]) -> str:
    return ", ".join(declare(a.type, a.name) for a in args) or "void"


def prototype(f: Function) -> str:
    return f"{declare(f.returns, f.name)}({arguments(f.args)})"


def callback(c: Callback) -> str:
    return f"typedef {declare(c.returns, '')}(*{c.name})({arguments(c.args)});".replace(" (", " (", 1)


def field(f: Field) -> str:
    return declare(f.type, f.name) + (f"[{f.array}]" if f.array is not None else "") + ";"


def struct(s: Struct, indent: str = "    ") -> str:
    return f"struct {s.name} {{\n" + "".join(f"{indent}{field(f)}\n" for f in s.fields) + "};"


def types(abi: Abi) -> str:
    """All types, in an order in which C accepts them."""
    lines = ["typedef uint64_t hws_id;"]
    lines += [f"typedef struct {s.name} {s.name};" for s in abi.structs]
    lines += [callback(c) for c in abi.callbacks]
    lines += [struct(s) for s in abi.structs]
    return "\n".join(lines) + "\n"
