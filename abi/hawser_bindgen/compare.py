"""Whether a program built against one description runs against another: what must not change, and did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .model import Abi, Function, Struct


def breaks(old: Abi, new: Abi) -> list[str]:
    """Every removal and change; additions are none. Each text starts with the name of what it is about."""
    found: list[str] = []
    found += _constants(old, new)
    found += _errors(old, new)
    found += _structs(old, new)
    found += _functions(old, new)
    for callback in old.callbacks:
        other = new.callback(callback.name)
        if other is None:
            found.append(f"{callback.name}: the callback is gone")
        elif _signature(callback) != _signature(other):
            found.append(f"{callback.name}: was {_signature(callback)}, is {_signature(other)}")
    return found


def _by_name(things: Iterable[Any]) -> dict[str, Any]:
    return {thing.name: thing for thing in things}


def _constants(old: Abi, new: Abi) -> list[str]:
    values = {c.name: c.value for c in new.constants}
    # The versions are what is to change.
    kept = [c for c in old.constants if not c.name.startswith("HWS_VERSION_") and c.name != "HWS_ABI_VERSION"]
    gone = [f"{c.name}: the constant is gone" for c in kept if c.name not in values]
    return gone + [
        f"{c.name}: was {c.value}, is {values[c.name]}" for c in kept if c.name in values and values[c.name] != c.value
    ]


def _errors(old: Abi, new: Abi) -> list[str]:
    now = _by_name(new.errors)
    gone = [f"HWS_E_{e.name}: the code is gone" for e in old.errors if e.name not in now]
    return gone + [
        f"HWS_E_{e.name}: was {e.code} {e.category}, is {now[e.name].code} {now[e.name].category}"
        for e in old.errors
        if e.name in now and (now[e.name].code, now[e.name].category) != (e.code, e.category)
    ]


def _structs(old: Abi, new: Abi) -> list[str]:
    found: list[str] = []
    for s in old.structs:
        other = new.struct(s.name)
        if other is None:
            found.append(f"{s.name}: the structure is gone")
            continue
        found += _fields(s, other)
        if other.size != s.size and not (s.sized and other.size > s.size):
            found.append(f"{s.name}: was {s.size} bytes, is {other.size}: only a structure with struct_size grows")
    return found


def _fields(old: Struct, new: Struct) -> list[str]:
    now = _by_name(new.fields)
    found: list[str] = []
    for f in old.fields:
        g = now.get(f.name)
        if g is None:
            found.append(f"{old.name}.{f.name}: the field is gone")
        elif (f.type.c, f.array, f.offset) != (g.type.c, g.array, g.offset):
            found.append(
                f"{old.name}.{f.name}: was {f.type.c}[{f.array or ''}] at {f.offset}, "
                f"is {g.type.c}[{g.array or ''}] at {g.offset}"
            )
    return found


def _functions(old: Abi, new: Abi) -> list[str]:
    now: dict[str, Function] = _by_name(new.functions)
    found: list[str] = []
    for f in old.functions:
        g = now.get(f.name)
        if g is None:
            found.append(f"{f.name}: the function is gone")
            continue
        if _signature(f) != _signature(g):
            found.append(f"{f.name}: was {_signature(f)}, is {_signature(g)}")
        if f.since != g.since:
            found.append(f"{f.name}: since {f.since}, now since {g.since}: its symbol has another version")
        if f.thread == "any" and g.thread != "any":
            found.append(f"{f.name}: was callable inside a callback")
        if not f.blocking and g.blocking:
            found.append(f"{f.name}: did not block")
        for a, b in zip(f.args, g.args, strict=False):
            if a.nullable and not b.nullable:
                found.append(f"{f.name}: {a.name} could be null")
            if set(a.kinds or ["any"]) - set(b.kinds or a.kinds or ["any"]):
                found.append(f"{f.name}: {a.name} took {a.kinds or 'any kind'}, takes {b.kinds}")
    return found


def _signature(thing: Any) -> str:
    return f"{thing.returns.c} ({', '.join(a.type.c for a in thing.args)})"
