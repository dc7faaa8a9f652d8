"""The dialect: what may stand in the header, judged by words and lines before anything is parsed."""

from __future__ import annotations

import re

from .report import Problem
from .scanner import Directive, Source

_FORBIDDEN = {
    "enum": "constants are #define, not enum",
    "union": "no unions",
    "inline": "no inline functions: other languages cannot call them",
    "static": "nothing static: other languages cannot call it",
    "extern": "functions are declared with HWS_API",
    "volatile": "no volatile",
    "restrict": "no restrict",
    "size_t": "uint64_t instead of size_t: the ABI has one width",
    "float": "no floating point",
    "_Bool": "uint32_t instead of a boolean",
    "bool": "uint32_t instead of a boolean",
}
for _word in ("int", "long", "short", "unsigned", "signed", "double", "wchar_t", "intptr_t", "uintptr_t"):
    _FORBIDDEN[_word] = f"a fixed-width type instead of {_word}"

_CONDITIONS = {"if defined(__cplusplus)", "if defined(HWS_BUILD)", "ifndef HAWSER_H", "else", "endif"}
_INCLUDES = {"<stddef.h>", "<stdint.h>"}


def lint(source: Source) -> list[Problem]:
    """Problems of directives and words. Blanks what is for C++ only, so that the rest is plain C."""
    problems: list[Problem] = []
    depth: list[str] = []
    hidden: list[tuple[int, int]] = []
    opened = 0
    for d in source.directives:
        problem = _directive(d, depth)
        if problem:
            problems.append(Problem(source.path, d.line, problem))
        text = f"{d.word} {d.rest}".strip()
        if d.word.startswith("if"):
            depth.append(text)
            opened = d.end_line
        elif d.word == "endif" and depth and "__cplusplus" in depth.pop():
            hidden.append((opened, d.line))
    for first, last in hidden:
        for number in range(first, last - 1):
            source.code[number] = ""
    if depth:
        problems.append(Problem(source.path, len(source.raw), f"#{depth[-1]} without #endif"))
    return problems + _words(source)


def _directive(d: Directive, depth: list[str]) -> str | None:
    text = f"{d.word} {d.rest}".strip()
    if d.word == "include":
        return None if d.rest in _INCLUDES else f"#include {d.rest}: only {' and '.join(sorted(_INCLUDES))}"
    if d.word == "define":
        name = d.rest.partition(" ")[0]
        if "(" in name:
            return f"{name.partition('(')[0]}: no macros with arguments"
        if not name.startswith("HWS_") and name != "HAWSER_H":
            return f"{name}: names of constants start with HWS_"
        if name != "HWS_API" and any("HWS_BUILD" in c for c in depth):
            return f"{name}: a constant must not depend on a condition"
        return None
    return None if text in _CONDITIONS else f"#{text}: not in the dialect"


def _words(source: Source) -> list[Problem]:
    problems = []
    for number, line in enumerate(source.code, 1):
        for word in re.findall(r"\w+|\.\.\.", line):
            if word in _FORBIDDEN:
                problems.append(Problem(source.path, number, f"`{word}`: {_FORBIDDEN[word]}"))
            elif word == "...":
                problems.append(Problem(source.path, number, "no variable arguments"))
    return problems
