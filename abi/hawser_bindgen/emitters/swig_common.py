"""What the SWIG interfaces of all languages share: which functions they hold, and which typemap each argument gets."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Abi, Arg, Function
from .ctext import declare, prototype


@dataclass
class Use:
    """A typemap (`pattern`, its names in capitals) for one or more arguments (`target`); `at` is the first's place."""

    pattern: str
    target: str
    args: list[Arg]
    at: int


def offered(f: Function) -> bool:
    """Nothing of these languages may run on the library's threads: what takes a callback is not theirs."""
    return not any(a.role == "callback" for a in f.args)


def uses(f: Function) -> list[Use]:
    found: list[Use] = []
    i = 0
    while i < len(f.args):
        pattern, taken = _pattern(f, i)
        if pattern:
            args = f.args[i : i + taken]
            target = ", ".join(declare(a.type, a.name) for a in args)
            found.append(Use(pattern, f"({target})" if taken > 1 else target, args, i))
        i += taken
    return found


def _pattern(f: Function, i: int) -> tuple[str, int]:
    """The typemap for the argument at a place, and how many arguments it takes."""
    a = f.args[i]
    follows = [b.name for b in f.args[i + 1 : i + 3]]
    if a.role == "buffer":
        if follows == [a.length, "needed"] and a.direction == "out":
            return f"({a.type.base} *HWS_FILL, uint64_t HWS_SIZE, uint64_t *HWS_NEEDED)", 3
        if follows[:1] == [a.length]:
            return (
                "(const void *HWS_IN, uint64_t HWS_LENGTH)" if a.type.const else "(void *HWS_OUT, uint64_t HWS_LENGTH)"
            ), 2
        return "void *HWS_OUT", 1
    if a.role == "array":
        if a.type.base == "hws_event":
            return "hws_event *HWS_EVENTS", 1
        if a.type.base == "hws_id":
            return "(hws_id *HWS_IDS, uint32_t HWS_COUNT)", 2
        if a.type.base == "hws_segment":
            return f"(const hws_segment *HWS_{'IN' if a.direction == 'in' else 'OUT'}, uint64_t HWS_COUNT)", 2
        return f"(const {a.type.base} *HWS_RECORDS, uint64_t HWS_COUNT)", 2
    if a.role == "options":
        return f"const {a.type.base} *HWS_OPTIONS", 1
    if a.role == "info":
        return f"{a.type.base} *HWS_INFO", 1
    if a.role == "struct":
        return ("hws_event *HWS_EVENT" if a.type.base == "hws_event" else f"{a.type.base} *HWS_INFO"), 1
    if a.role == "out" and a.type.pointers == 2 and follows[:1] == ["length"]:
        return "(void **HWS_DATA, uint64_t *HWS_LENGTH)", 2
    if a.role == "out" and not (f.posts and i == len(f.args) - 1):
        return ("void **HWS_OUT" if a.type.pointers == 2 else f"{a.type.base} *HWS_OUT"), 1
    return "", 1


def result_pattern(f: Function) -> str | None:
    if f.result != "status":
        return None
    if any(a.role == "array" and a.direction == "inout" for a in f.args):
        return "HWS_PARTIAL"
    return "HWS_POSITIVE" if f.positive else "HWS_ZERO"


def holders(f: Function, found: list[Use]) -> list[int]:
    """Numbers (from 1) of the arguments whose memory an operation, or a registered memory, keeps after the call."""
    keeps = f.posts or any(a.role == "out" and a.name == "out" for a in f.args)
    copied = {"header", "packed", "address"}
    return [
        u.at + 1
        for u in found
        if keeps
        and u.args[0].role in ("buffer", "array")
        and u.args[0].name not in copied
        and u.args[0].type.base != "hws_id"
    ]


def fill_action(f: Function, use: Use) -> str:
    """Repeats a call that fills memory until there is room; what is needed may grow in between."""
    memory, size, needed = (f"arg{use.at + n}" for n in (1, 2, 3))
    args = ", ".join(f"arg{n + 1}" for n in range(len(f.args)))
    return f"""%feature("action") {f.name} %{{
    for (int tries = 0; tries < 8; tries++) {{
        result = {f.name}({args});
        if ((result < 0 && result != HWS_E_TOO_BIG) || *{needed} <= {size}) {{
            break;
        }}
        free({memory});
        {size} = *{needed};
        {memory} = malloc({size});
        if ({memory} == NULL) {{
            result = HWS_E_NO_MEMORY;
            break;
        }}
    }}
%}}
"""


def declaration(f: Function) -> str:
    return prototype(f) + ";\n"


def constants(abi: Abi) -> str:
    return "".join(f"%constant {c.ctype} {c.name.removeprefix('HWS_')} = {c.name};\n" for c in abi.constants)


def excluded(abi: Abi) -> list[Function]:
    return [f for f in abi.functions if not offered(f)]


def place(f: Function, name: str | None) -> int:
    """Where an argument stands, from 0."""
    return next(i for i, a in enumerate(f.args) if a.name == name)
