"""SWIG: the interface of the Python module hawser._swig, and its type stub."""

from __future__ import annotations

from ..model import HEADING, Abi, Arg, Function
from . import swig_common as common
from .text import docstring, heading

INTERFACE = "abi/generated/python/_swig.i"
STUB = "bindings/python/src/hawser/_swig.pyi"


def emit(abi: Abi) -> dict[str, str]:
    return {INTERFACE: _interface(abi), STUB: _stub(abi)}


def _interface(abi: Abi) -> str:
    parts = [
        f"/* The Python module hawser._swig. {HEADING}. */\n",
        '%module(package="hawser") _swig\n',
        '%{\n#include "hawser_python.h"\n%}\n',
        "%include <stdint.i>\n%include <exception.i>\ntypedef uint64_t hws_id;\n",
        "/* The GIL is released by those functions only that wait for something. */\n%nothread;\n",
        '%include "hawser_python.swg"\n',
        "".join(f"HWS_STRUCTURE({s.name})\n" for s in abi.structs),
        common.constants(abi),
    ]
    parts += [common.function(f, LANGUAGE) for f in abi.functions if common.offered(f)]
    parts.append(
        "%pythoncode %{\n# The C functions, without a Python function around each.\nfrom .__swig import *\n%}\n"
    )
    return "\n".join(parts)


def _features(f: Function) -> str:
    text = f.brief.replace("\\", "\\\\").replace('"', '\\"')
    return f'%feature("docstring") {f.name} "{text}"\n' + (f"%thread {f.name};\n" if f.blocking else "")


def _events(f: Function, use: common.Use, count: int) -> str:
    shown = common.events_shown(f, count)
    return (
        f"%typemap(check) {use.target} %{{\n"
        f"    $1 = calloc((size_t)arg{count} + 1, sizeof *$1);\n"
        "    if ($1 == NULL) {\n        PyErr_NoMemory();\n        SWIG_fail;\n    }\n%}\n"
        f'%typemap(argout) {use.target} "$result = add_result($result, make_events($1, {shown}));"\n'
    )


def _refuse_small(use: common.Use, size: int) -> str:
    return (
        f"%typemap(check) {use.target} %{{\n"
        f"    if ($1 != NULL && room{use.at + 1} < arg{size}) {{\n"
        f'        PyErr_SetString(PyExc_ValueError, "{use.args[0].name} is too small");\n'
        "        SWIG_fail;\n    }\n%}\n"
    )


def _keep(f: Function, held: list[int]) -> str:
    """The memory of an operation's buffers stays exported until its final event; that of a registered memory, too."""
    out = ""
    if f.posts:
        pins = "".join(
            f"    if (result == HWS_OK && pin(*$1, held{n}) != 0) {{\n        SWIG_fail;\n    }}\n" for n in held
        )
        out += common.operation(f, held)
        out += f"%typemap(argout) hws_id *op %{{\n{pins}    $result = posted($result, result, *$1);\n%}}\n"
    elif held:
        pins = "".join(f"    if (pin(*$1, held{n}) != 0) {{\n        SWIG_fail;\n    }}\n" for n in held)
        out += f"%typemap(argout) hws_id *out %{{\n{pins}    unpin_objects();\n"
        out += "    $result = add_result($result, PyLong_FromUnsignedLongLong(*$1));\n%}\n"
    elif f.name.startswith("hws_close"):
        out += f'%typemap(ret) int32_t {f.name} "unpin_objects();"\n'
    return out


LANGUAGE = common.Language(_events, _refuse_small, _keep, _features)


def _stub(abi: Abi) -> str:
    parts = [
        heading("#", "The types of the SWIG module."),
        "from collections.abc import Mapping, Sequence\nfrom typing import Any\n\n"
        "from typing_extensions import Buffer\n\n"
        "Options = Mapping[str, Any] | None\nRecord = dict[str, Any]\n\n",
        "".join(f"{c.name.removeprefix('HWS_')}: int\n" for c in abi.constants),
        "\n",
    ]
    parts += [_stub_function(f) for f in abi.functions if common.offered(f)]
    return "".join(parts)


def _stub_function(f: Function) -> str:
    given: list[str] = []
    filled: list[str] = []
    uses = {u.at: u for u in common.uses(f)}
    skip = 0
    for i, a in enumerate(f.args):
        if skip:
            skip -= 1
            continue
        use = uses.get(i)
        skip = len(use.args) - 1 if use else 0
        into, out = _python(a, use.pattern if use else "", f.posts and i == len(f.args) - 1)
        given += [into] if into else []
        filled += [out] if out else []
    results = (["int"] if f.positive and f.result == "status" else []) + filled
    returns = {"text": "str", "value": "int"}.get(f.result) or _results(results)
    head = f"def {f.name.removeprefix('hws_')}({', '.join(given)}) -> {returns}:\n"
    if len(head) > 121:
        head = head.replace("(", "(\n    ", 1).replace(f") -> {returns}", f",\n) -> {returns}")
    return head + docstring(f.brief, "    ")


def _results(results: list[str]) -> str:
    if not results:
        return "None"
    return results[0] if len(results) == 1 else f"tuple[{', '.join(results)}]"


def _python(a: Arg, pattern: str, is_op: bool) -> tuple[str | None, str | None]:
    """How an argument is given, and what it gives back."""
    if is_op:
        return None, "int | Record"
    if "HWS_FILL" in pattern:
        return None, "str" if a.type.base == "char" else "bytes"
    if "HWS_IDS" in pattern:
        return f"{a.name}: Sequence[int]", "list[int]"
    if "HWS_RECORDS" in pattern:
        return f"{a.name}: Sequence[Mapping[str, Any]]", None
    if "hws_segment" in pattern:
        return f"{a.name}: Sequence[Buffer]", None
    simple: dict[str, tuple[str | None, str | None]] = {
        "buffer": (f"{a.name}: Buffer" + (" | None" if a.nullable else ""), None),
        "options": (f"{a.name}: Options = None", None),
        "info": (None, "Record"),
        "struct": (None, "Record"),
        "array": (None, "list[Record]"),
        "out": (None, "bytes" if "HWS_DATA" in pattern else "int"),
        "text": (f"{a.name}: str" + (" | None" if a.nullable else ""), None),
    }
    return simple.get(a.role, (f"{a.name}: int", None))
