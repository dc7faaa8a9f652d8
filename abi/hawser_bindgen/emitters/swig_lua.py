"""SWIG: the interface of the Lua 5.4 module hawser.swig."""

from __future__ import annotations

from ..model import HEADING, Abi, Function
from . import swig_common as common

PATH = "abi/generated/lua/hawser_swig.i"


def emit(abi: Abi) -> dict[str, str]:
    parts = [
        f"/* The Lua module hawser.swig. {HEADING}. */\n",
        "%module hawser_swig\n",
        '%{\n#include "hawser_lua.h"\n%}\n',
        "typedef unsigned short uint16_t;\ntypedef unsigned uint32_t;\ntypedef int int32_t;\n"
        "typedef unsigned long uint64_t;\ntypedef uint64_t hws_id;\n",
        '%include "hawser_lua.swg"\n',
        "%native(buffer) int new_buffer(lua_State *L);\n%init %{\n    make_buffer_class(L);\n%}\n",
        "".join(f"HWS_STRUCTURE({s.name})\n" for s in abi.structs),
        common.constants(abi),
    ]
    parts += [_function(f) for f in abi.functions if common.offered(f)]
    return {PATH: "\n".join(parts)}


def _function(f: Function) -> str:
    found = common.uses(f)
    before = [f"%rename({f.name.removeprefix('hws_')}) {f.name};\n"]
    after: list[str] = []
    result = common.result_pattern(f)
    if result:
        before.append(f"%apply int32_t {result} {{ int32_t {f.name} }};\n")
        after.append(f"%clear int32_t {f.name};\n")
    for use in found:
        before.append(f"%apply {use.pattern} {{ {use.target} }};\n")
        after.append(f"%clear {use.target};\n")
        before.append(_special(f, use))
    before.append(_keep(f, found))
    after.append("%clear hws_id *op;\n" if f.posts else "%clear hws_id *out;\n" if common.holders(f, found) else "")
    return "".join(before) + common.declaration(f) + "".join(after)


def _special(f: Function, use: common.Use) -> str:
    """What a typemap needs to know of other arguments of the same function."""
    a = use.args[0]
    if "HWS_EVENTS" in use.pattern:
        count = common.place(f, a.length) + 1
        together = any(b.role == "array" and b.direction == "inout" for b in f.args)
        shown = f"arg{count}" if together else "(uint64_t)result"
        condition = "result >= 0 || result == HWS_E_TIMED_OUT" if together else "result >= 0"
        return (
            f"%typemap(check) {use.target} %{{\n    $1 = stack_memory(L, ((size_t)arg{count} + 1) * sizeof *$1);\n%}}\n"
            f"%typemap(argout) {use.target} %{{\n    if ({condition}) {{\n"
            f"        push_events(L, $1, {shown});\n        SWIG_arg++;\n    }}\n%}}\n"
        )
    if "HWS_FILL" in use.pattern:
        return common.fill_action(f, use)
    if use.pattern == "void *HWS_OUT" and a.length:
        size = common.place(f, a.length) + 1
        return (
            f"%typemap(check) {use.target} %{{\n    if ($1 != NULL && room{use.at + 1} < arg{size}) {{\n"
            f'        lua_pushliteral(L, "{a.name} is too small");\n        SWIG_fail;\n    }}\n%}}\n'
        )
    return ""


def _keep(f: Function, found: list[common.Use]) -> str:
    """The memory of an operation's buffers stays referenced until its final event; that of a registered memory, too."""
    held = common.holders(f, found)
    if f.posts:
        pins = _pins(f, held, "result == HWS_OK")
        opts = next(i for i, a in enumerate(f.args) if a.type.base == "hws_op_opts") + 1
        check = f"if (check_flags(L, arg{opts}, {int(bool(held))}) != 0) {{\n        SWIG_fail;\n    }}"
        return (
            '%typemap(in, numinputs=0) hws_id *op (hws_id value = 0) "$1 = &value;"\n'
            f"%typemap(check) hws_id *op %{{\n    {check}\n%}}\n"
            f"%typemap(argout) hws_id *op %{{\n{pins}    if (result >= 0) {{\n"
            "        push_posted(L, result, *$1);\n        SWIG_arg++;\n    }\n%}\n"
        )
    if held:
        pins = _pins(f, held, "result >= 0")
        return (
            f"%typemap(argout) hws_id *out %{{\n    unpin_objects(L);\n{pins}    if (result >= 0) {{\n"
            "        lua_pushinteger(L, (lua_Integer)*$1);\n        SWIG_arg++;\n    }\n%}\n"
        )
    if f.name.startswith("hws_close"):
        return '%typemap(argout) hws_id id "unpin_objects(L);"\n'
    return ""


def _pins(f: Function, held: list[int], condition: str) -> str:
    """One value for each argument; an operation has one argument that it keeps."""
    assert len(held) <= 1, f"{f.name} keeps two arguments: pin a list of them"
    return "".join(f"    if ({condition}) {{\n        pin(L, *$1, at{n});\n    }}\n" for n in held)
