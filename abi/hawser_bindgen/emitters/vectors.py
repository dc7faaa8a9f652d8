"""
JSON: wrong calls of every function and the code that each must give, for the conformance runner and its replays.

A vector names a function and says how each argument is made:
    {"id": "zero" | "random" | a kind | "stale " + a kind}     {"number": n}     {"text": "..."}     {"null": true}
    {"memory": bytes}     {"options": struct, "size": "known" | "zero" | "huge" | "tail"}     {"info": ...the same}
    {"fill": type}   room for one number, id or pointer        {"records": struct, "count": n}     {"ids": n}
    {"callback": name}   one that must not be called            {"user": true}   a pointer that is passed through
"quiet" stands where the last error is left alone. `needs` says what a binding must let its user do to make the calls
of a file: "ids" nothing special, "pointers" give a null pointer, "sizes" set struct_size.
"""

from __future__ import annotations

import json
from typing import Any

from ..model import HEADING, Abi, Arg, Function

FOLDER = "abi/vectors"

#: Arguments that nothing is wrong with, by their names; other numbers are 1, other texts null.
_NUMBERS = {"address": 0, "length": 8, "size": 8, "timeout_ns": 0, "period_ns": 0}
_TEXTS = {"host": "127.0.0.1"}

Vector = dict[str, Any]


def emit(abi: Abi) -> dict[str, str]:
    groups: dict[str, list[Vector]] = {"ids": [], "pointers": [], "sizes": []}
    for f in abi.functions:
        if f.result == "status":
            groups["ids"] += _ids(abi, f)
            groups["pointers"] += _pointers(f)
            groups["sizes"] += _sizes(f)
    return {f"{FOLDER}/{needs}.json": _text(needs, vectors) for needs, vectors in groups.items()}


def _text(needs: str, vectors: list[Vector]) -> str:
    lines = ",\n".join("  " + json.dumps(v) for v in vectors)
    return f'{{\n "generated": {json.dumps(HEADING)},\n "needs": "{needs}",\n "vectors": [\n{lines}\n ]\n}}\n'


def _good(a: Arg) -> dict[str, Any]:
    """An argument that nothing is wrong with."""
    if a.role == "id":
        return {"id": a.kinds[0] if a.kinds else "worker"}
    if a.role == "value":
        return {"number": _NUMBERS.get(a.name, 1)}
    if a.role == "text":
        return {"text": _TEXTS[a.name]} if a.name in _TEXTS else {"null": True}
    if a.role == "options":
        return {"null": True}
    if a.role == "info":
        return {"info": a.type.base, "size": "known"}
    if a.role == "buffer":
        return {"memory": 64}
    if a.role == "array":
        return {"ids": 1} if a.type.base == "hws_id" else {"records": a.type.base, "count": 1}
    if a.role == "struct":
        return {"records": a.type.base, "count": 1}
    if a.role == "callback":
        return {"callback": a.type.base}
    return {"user": True} if a.role == "user" else {"fill": a.type.base if a.type.pointers == 1 else "pointer"}


def _vector(f: Function, wrong: Arg, how: str, value: dict[str, Any], expect: str) -> Vector:
    args = [value if a is wrong else _good(a) for a in f.args]
    vector = {"name": f"{f.name}: {wrong.name} {how}", "function": f.name, "args": args, "expect": expect}
    # Who asks for the last error must not change it.
    return vector | {"quiet": True} if f.name == "hws_last_error" else vector


def _ids(abi: Abi, f: Function) -> list[Vector]:
    vectors: list[Vector] = []
    for a in f.args:
        if a.role != "id":
            continue
        taken = a.kinds or [k.name for k in abi.kinds]
        vectors.append(_vector(f, a, "zero", {"id": "zero"}, "BAD_ID"))
        vectors.append(_vector(f, a, "random", {"id": "random"}, "BAD_ID"))
        vectors += [_vector(f, a, f"stale {k}", {"id": f"stale {k}"}, "STALE") for k in taken]
        vectors += [_vector(f, a, k.name, {"id": k.name}, "KIND") for k in abi.kinds if k.name not in taken]
    return vectors


def _pointers(f: Function) -> list[Vector]:
    """Null for each pointer that is not nullable; for the id of an operation that nothing else would tell of, too."""
    wrong = [
        a
        for a in f.args
        if (a.type.pointers > 0 or a.role == "callback") and (not a.nullable or (f.posts and a is f.args[-1]))
    ]
    return [_vector(f, a, "null", {"null": True}, "INVALID") for a in wrong]


def _sizes(f: Function) -> list[Vector]:
    vectors: list[Vector] = []
    for a in f.args:
        if a.role in ("options", "info"):
            wrong = {"zero": "INVALID", "huge": "INVALID"} | ({"tail": "NEWER"} if a.role == "options" else {})
            for size, expect in wrong.items():
                value = {a.role: a.type.base, "size": size}
                vectors.append(_vector(f, a, f"size {size}", value, expect))
    return vectors
