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
    parts += [_function(f) for f in abi.functions if common.offered(f)]
    parts.append(
        "%pythoncode %{\n# The C functions, without a Python function around each.\nfrom .__swig import *\n%}\n"
    )
    return "\n".join(parts)


def _function(f: Function) -> str:
    found = common.uses(f)
    before = [f"%rename({f.name.removeprefix('hws_')}) {f.name};\n"]
    after: list[str] = []
    text = f.brief.replace("\\", "\\\\").replace('"', '\\"')
    before.append(f'%feature("docstring") {f.name} "{text}"\n')
    if f.blocking:
        before.append(f"%thread {f.name};\n")
    result = common.result_pattern(f)
    if result:
        before.append(f"%apply int32_t {result} {{ int32_t {f.name} }};\n")
        after.append(f"%clear int32_t {f.name};\n")
    for use in found:
        before.append(f"%apply {use.pattern} {{ {use.target} }};\n")
        after.append(f"%clear {use.target};\n")
        special, undo = _special(f, use)
        before.append(special)
        after.append(undo)
    before.append(_keep(f, found))
    after.append(_unkeep(f, found))
    return "".join(before) + common.declaration(f) + "".join(after)


def _special(f: Function, use: common.Use) -> tuple[str, str]:
    """What a typemap needs to know of other arguments of the same function."""
    a = use.args[0]
    if use.pattern.startswith("hws_event *HWS_EVENTS"):
        count = common.place(f, a.length) + 1
        # An array that is changed in step with this one: every entry counts, else as many as were taken.
        together = any(b.role == "array" and b.direction == "inout" for b in f.args)
        shown = f"arg{count}" if together else "(uint64_t)result"
        return (
            f"%typemap(check) {use.target} %{{\n"
            f"    $1 = calloc((size_t)arg{count} + 1, sizeof *$1);\n"
            "    if ($1 == NULL) {\n        PyErr_NoMemory();\n        SWIG_fail;\n    }\n%}\n"
            f'%typemap(argout) {use.target} "$result = add_result($result, make_events($1, {shown}));"\n',
            f"%clear {use.target};\n",
        )
    if "HWS_FILL" in use.pattern:
        return common.fill_action(f, use), f'%feature("action") {f.name};\n'
    if use.pattern == "void *HWS_OUT" and a.length:
        size = common.place(f, a.length) + 1
        return (
            f"%typemap(check) {use.target} %{{\n"
            f"    if ($1 != NULL && room{use.at + 1} < arg{size}) {{\n"
            f'        PyErr_SetString(PyExc_ValueError, "{a.name} is too small");\n        SWIG_fail;\n    }}\n%}}\n',
            f"%clear {use.target};\n",
        )
    return "", ""


def _keep(f: Function, found: list[common.Use]) -> str:
    """The memory of an operation's buffers stays exported until its final event; that of a registered memory, too."""
    held = common.holders(f, found)
    out = ""
    if f.posts:
        pins = "".join(
            f"    if (result == HWS_OK && pin(*$1, held{n}) != 0) {{\n        SWIG_fail;\n    }}\n" for n in held
        )
        out += '%typemap(in, numinputs=0) hws_id *op (hws_id value = 0) "$1 = &value;"\n'
        out += f"%typemap(argout) hws_id *op %{{\n{pins}    $result = posted($result, result, *$1);\n%}}\n"
        opts = next(i for i, a in enumerate(f.args) if a.type.base == "hws_op_opts") + 1
        check = f"if (check_flags(arg{opts}, {int(bool(held))}) != 0) {{\n        SWIG_fail;\n    }}"
        out += f"%typemap(check) hws_id *op %{{\n    {check}\n%}}\n"
    elif held:
        pins = "".join(f"    if (pin(*$1, held{n}) != 0) {{\n        SWIG_fail;\n    }}\n" for n in held)
        out += f"%typemap(argout) hws_id *out %{{\n{pins}    unpin_objects();\n"
        out += "    $result = add_result($result, PyLong_FromUnsignedLongLong(*$1));\n%}\n"
    elif f.name.startswith("hws_close"):
        out += f'%typemap(ret) int32_t {f.name} "unpin_objects();"\n'
    return out


def _unkeep(f: Function, found: list[common.Use]) -> str:
    if f.posts:
        return "%clear hws_id *op;\n"
    return "%clear hws_id *out;\n" if common.holders(f, found) else ""


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
