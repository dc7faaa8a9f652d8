"""Rust: one function that makes each call of the vectors, for the tests of the declarations."""

from __future__ import annotations

from ..model import Abi
from .text import heading

PATH = "bindings/rust-sys/tests/replay/calls.rs"


def emit(abi: Abi) -> dict[str, str]:
    functions = [f for f in abi.functions if f.result == "status"]
    arms = ""
    for f in functions:
        args = ", ".join(f"a.get({i})" for i in range(len(f.args)))
        arms += f'        "{f.name}" => {f.name}({args}),\n'
    return {
        PATH: heading("//", "The functions that give a code, by their names.")
        + "\nuse crate::arguments::Arguments;\nuse hawser_sys::*;\n\n"
        + "/// # Safety\n/// The arguments must be of the types that the function takes.\n"
        + "pub unsafe fn call(name: &str, a: &Arguments) -> i32 {\n    match name {\n"
        + arms
        + '        other => panic!("{other} is not declared"),\n    }\n}\n'
    }
