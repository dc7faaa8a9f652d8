"""What the SWIG interfaces of all languages share: which functions they hold, and which typemap each argument gets."""

from __future__ import annotations

from collections.abc import Callable
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
    if in_step(f):
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


@dataclass
class Language:
    """What typemaps look like in one language."""

    #: An array of events, room for which is made; the argument (from 1) that says for how many.
    events: Callable[[Function, Use, int], str]
    #: Memory that is smaller than an argument (from 1) says is refused.
    refuse_small: Callable[[Use, int], str]
    #: The memory of `holders` stays alive.
    keep: Callable[[Function, list[int]], str]
    #: Further features of a function.
    features: Callable[[Function], str] = lambda _: ""


def function(f: Function, language: Language) -> str:
    """A function's declaration, the typemaps that are its own around it."""
    found = uses(f)
    held = holders(f, found)
    parts = [f"%rename({f.name.removeprefix('hws_')}) {f.name};\n", language.features(f)]
    targets = [use.target for use in found]
    if result := result_pattern(f):
        parts.append(f"%apply int32_t {result} {{ int32_t {f.name} }};\n")
        targets.insert(0, f"int32_t {f.name}")
    for use in found:
        parts += [f"%apply {use.pattern} {{ {use.target} }};\n", _beside(f, use, language)]
    if f.posts or held:
        targets.append("hws_id *op" if f.posts else "hws_id *out")
    parts += [language.keep(f, held), prototype(f), ";\n"]
    return "".join(parts + [f"%clear {target};\n" for target in targets])


def _beside(f: Function, use: Use, language: Language) -> str:
    """What a typemap needs to know of other arguments of the same function."""
    a = use.args[0]
    if "HWS_FILL" in use.pattern:
        return fill_action(f, use)
    if "HWS_EVENTS" in use.pattern:
        return language.events(f, use, place(f, a.length) + 1)
    if use.pattern == "void *HWS_OUT" and a.length:
        return language.refuse_small(use, place(f, a.length) + 1)
    return ""


def events_shown(f: Function, count: int) -> str:
    """How many events a call has filled in; `count` is the argument that says for how many there is room."""
    # An array that is changed in step with them: every entry counts, else as many as were taken.
    return f"arg{count}" if in_step(f) else "(uint64_t)result"


def in_step(f: Function) -> bool:
    return any(a.role == "array" and a.direction == "inout" for a in f.args)


def operation(f: Function, held: list[int], state: str = "") -> str:
    """The id of an operation is no argument; its flags are looked at. `state`: what a language passes first of all."""
    opts = next(i for i, a in enumerate(f.args) if a.type.base == "hws_op_opts") + 1
    return (
        '%typemap(in, numinputs=0) hws_id *op (hws_id value = 0) "$1 = &value;"\n'
        f"%typemap(check) hws_id *op %{{\n    if (check_flags({state}arg{opts}, {int(bool(held))}) != 0) {{\n"
        "        SWIG_fail;\n    }\n%}\n"
    )


def constants(abi: Abi) -> str:
    return "".join(f"%constant {c.ctype} {c.name.removeprefix('HWS_')} = {c.name};\n" for c in abi.constants)


def excluded(abi: Abi) -> list[Function]:
    return [f for f in abi.functions if not offered(f)]


def place(f: Function, name: str | None) -> int:
    """Where an argument stands, from 0."""
    return next(i for i, a in enumerate(f.args) if a.name == name)
