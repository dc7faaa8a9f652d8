"""Rust: extern declarations, constants and structures, with their layout asserted when it is compiled."""

from __future__ import annotations

import re

from ..model import Abi, Arg, Callback, Constant, Function, Struct, Type
from .text import heading

PATH = "bindings/rust-sys/src/bindings.rs"

_SCALARS = {
    "void": "c_void", "char": "c_char", "int8_t": "i8", "uint8_t": "u8", "int16_t": "i16", "uint16_t": "u16",
    "int32_t": "i32", "uint32_t": "u32", "int64_t": "i64", "uint64_t": "u64",
}  # fmt: skip
_KEYWORDS = {"as", "box", "fn", "impl", "in", "loop", "match", "mod", "move", "mut", "ref", "type", "use", "where"}


def emit(abi: Abi) -> dict[str, str]:
    parts = [
        heading("//", "The ABI for Rust."),
        "#![allow(non_camel_case_types)]\n",
        "use core::ffi::{c_char, c_void};\nuse core::mem::{align_of, offset_of, size_of};\n",
        "/// The name of an object or an operation; 0 is none.\npub type hws_id = u64;\n",
        "".join(_constant(c) for c in abi.constants),
        "".join(_callback(c) for c in abi.callbacks),
        "\n".join(_struct(s) for s in abi.structs),
        "".join(_layout(s) for s in abi.structs),
        'unsafe extern "C" {\n' + "\n".join(_function(f) for f in abi.functions) + "}\n",
    ]
    return {PATH: "\n".join(parts)}


def _doc(text: str, indent: str = "") -> str:
    lines = text.replace("[", "\\[").replace("]", "\\]").split("\n")
    return "".join(f"{indent}/// {line}".rstrip() + "\n" for line in lines) if text else ""


def _name(name: str) -> str:
    return f"r#{name}" if name in _KEYWORDS else name


def _type(kind: Type) -> str:
    """`const char *const *` is a pointer to const pointers to const c_char."""
    text = _SCALARS.get(kind.base, kind.base)
    levels = ["const" in part for part in re.split(r"\*", kind.c)[: kind.pointers]]
    for const in levels:
        text = f"*{'const' if const else 'mut'} {text}"
    return text


def _constant(c: Constant) -> str:
    kind = {"int32_t": "i32", "uint32_t": "u32", "uint64_t": "u64"}[c.ctype]
    # Options and events hold their constants in unsigned fields; codes and results are signed.
    if kind == "i32" and c.group is not None:
        kind = "u32"
    return f"{_doc(c.doc)}pub const {c.name}: {kind} = {c.value};\n"


def _arguments(args: list[Arg]) -> str:
    return ", ".join(f"{_name(a.name)}: {_type(a.type)}" for a in args)


def _returns(kind: Type) -> str:
    return "" if kind.c == "void" else f" -> {_type(kind)}"


def _callback(c: Callback) -> str:
    """An Option: C's null is None."""
    function = f'unsafe extern "C" fn({_arguments(c.args)}){_returns(c.returns)}'
    return f"{_doc(c.doc)}pub type {c.name} = Option<{function}>;\n"


def _struct(s: Struct) -> str:
    fields = ""
    for f in s.fields:
        kind = _type(f.type) if f.array is None else f"[{_type(f.type)}; {f.array}]"
        fields += f"{_doc(f.doc, '    ')}    pub {_name(f.name)}: {kind},\n"
    return f"{_doc(s.doc)}#[repr(C)]\n#[derive(Clone, Copy, Debug)]\npub struct {s.name} {{\n{fields}}}\n" + _zeroed(s)


def _zeroed(s: Struct) -> str:
    size = f"        value.struct_size = {s.size};\n" if s.sized else ""
    mutable = "mut " if s.sized else ""
    return (
        f"\nimpl Default for {s.name} {{\n"
        f"    /// All zero{', with its size set' if s.sized else ''}.\n"
        "    fn default() -> Self {\n"
        "        // SAFETY: numbers, pointers and optional functions: all of them may be zero.\n"
        f"        let {mutable}value: Self = unsafe {{ core::mem::zeroed() }};\n{size}        value\n    }}\n}}\n"
    ).replace(
        "        let value: Self = unsafe { core::mem::zeroed() };\n        value\n",
        "        unsafe { core::mem::zeroed() }\n",
    )


def _layout(s: Struct) -> str:
    checks = [f"size_of::<{s.name}>() == {s.size}", f"align_of::<{s.name}>() == {s.align}"]
    checks += [f"offset_of!({s.name}, {_name(f.name)}) == {f.offset}" for f in s.fields]
    return "".join(f"const _: () = assert!({check});\n" for check in checks)


def _function(f: Function) -> str:
    doc = f"{f.doc}\n\nThreads: {f.thread}. Blocks: {f.blocks}. Owns: {f.owns}. Returns: {f.return_doc}."
    return f"{_doc(doc, '    ')}    pub fn {f.name}({_arguments(f.args)}){_returns(f.returns)};\n"
