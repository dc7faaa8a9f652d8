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
    parts += [common.function(f, LANGUAGE) for f in abi.functions if common.offered(f)]
    return {PATH: "\n".join(parts)}


def _events(f: Function, use: common.Use, count: int) -> str:
    condition = "result >= 0 || result == HWS_E_TIMED_OUT" if common.in_step(f) else "result >= 0"
    return (
        f"%typemap(check) {use.target} %{{\n    $1 = stack_memory(L, ((size_t)arg{count} + 1) * sizeof *$1);\n%}}\n"
        f"%typemap(argout) {use.target} %{{\n    if ({condition}) {{\n"
        f"        push_events(L, $1, {common.events_shown(f, count)});\n        SWIG_arg++;\n    }}\n%}}\n"
    )


def _refuse_small(use: common.Use, size: int) -> str:
    return (
        f"%typemap(check) {use.target} %{{\n    if ($1 != NULL && room{use.at + 1} < arg{size}) {{\n"
        f'        lua_pushliteral(L, "{use.args[0].name} is too small");\n        SWIG_fail;\n    }}\n%}}\n'
    )


def _keep(f: Function, held: list[int]) -> str:
    """The memory of an operation's buffers stays referenced until its final event; that of a registered memory, too."""
    if f.posts:
        pins = _pins(f, held, "result == HWS_OK")
        return common.operation(f, held, "L, ") + (
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


LANGUAGE = common.Language(_events, _refuse_small, _keep)
