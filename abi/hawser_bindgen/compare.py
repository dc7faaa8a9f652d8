"""Whether a program built against one description runs against another: what must not change, and did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .model import Abi, Function, Struct


def breaks(old: Abi, new: Abi) -> list[str]:
    """Every removal and change; additions are none. Each text starts with the name of what it is about."""
    found: list[str] = []
    found += _constants(old, new)
    found += _errors(old, new)
    found += _structs(old, new)
    found += _functions(old, new)
    found += _callbacks(old, new)
    return found


def _both(old: Iterable[Any], new: Iterable[Any], what: str, found: list[str]) -> Iterator[tuple[Any, Any]]:
    """What there was, with what it is now. Of what is gone `found` tells, by `what` with its name in it."""
    now = {thing.name: thing for thing in new}
    for thing in old:
        if thing.name in now:
            yield thing, now[thing.name]
        else:
            found.append(f"{what.format(thing.name)} is gone")


def _constants(old: Abi, new: Abi) -> list[str]:
    # The versions are what is to change.
    kept = [c for c in old.constants if not c.name.startswith("HWS_VERSION_") and c.name != "HWS_ABI_VERSION"]
    found: list[str] = []
    for c, d in _both(kept, new.constants, "{}: the constant", found):
        if c.value != d.value:
            found.append(f"{c.name}: was {c.value}, is {d.value}")
    return found


def _errors(old: Abi, new: Abi) -> list[str]:
    found: list[str] = []
    for e, now in _both(old.errors, new.errors, "HWS_E_{}: the code", found):
        if (e.code, e.category) != (now.code, now.category):
            found.append(f"HWS_E_{e.name}: was {e.code} {e.category}, is {now.code} {now.category}")
    return found


def _structs(old: Abi, new: Abi) -> list[str]:
    found: list[str] = []
    for s, now in _both(old.structs, new.structs, "{}: the structure", found):
        found += _fields(s, now)
        if now.size != s.size and not (s.sized and now.size > s.size):
            found.append(f"{s.name}: was {s.size} bytes, is {now.size}: only a structure with struct_size grows")
    return found


def _fields(old: Struct, new: Struct) -> list[str]:
    found: list[str] = []
    for f, g in _both(old.fields, new.fields, old.name + ".{}: the field", found):
        if (f.type.c, f.array, f.offset) != (g.type.c, g.array, g.offset):
            found.append(
                f"{old.name}.{f.name}: was {f.type.c}[{f.array or ''}] at {f.offset}, "
                f"is {g.type.c}[{g.array or ''}] at {g.offset}"
            )
    return found


def _callbacks(old: Abi, new: Abi) -> list[str]:
    found: list[str] = []
    for c, now in _both(old.callbacks, new.callbacks, "{}: the callback", found):
        if _signature(c) != _signature(now):
            found.append(f"{c.name}: was {_signature(c)}, is {_signature(now)}")
    return found


def _functions(old: Abi, new: Abi) -> list[str]:
    found: list[str] = []
    for f, g in _both(old.functions, new.functions, "{}: the function", found):
        if _signature(f) != _signature(g):
            found.append(f"{f.name}: was {_signature(f)}, is {_signature(g)}")
        if f.since != g.since:
            found.append(f"{f.name}: since {f.since}, now since {g.since}: its symbol has another version")
        if f.thread == "any" and g.thread != "any":
            found.append(f"{f.name}: was callable inside a callback")
        if not f.blocking and g.blocking:
            found.append(f"{f.name}: did not block")
        found += _arguments(f, g)
    return found


def _arguments(old: Function, new: Function) -> list[str]:
    found: list[str] = []
    for a, b in zip(old.args, new.args, strict=False):
        if a.nullable and not b.nullable:
            found.append(f"{old.name}: {a.name} could be null")
        if set(a.kinds or ["any"]) - set(b.kinds or a.kinds or ["any"]):
            found.append(f"{old.name}: {a.name} took {a.kinds or 'any kind'}, takes {b.kinds}")
    return found


def _signature(thing: Any) -> str:
    return f"{thing.returns.c} ({', '.join(a.type.c for a in thing.args)})"
