"""The table of result codes in abi/errors.def."""

from __future__ import annotations

import re

from .model import Constant, Error
from .report import Problem
from .scanner import scan

CATEGORIES = ("usage", "state", "peer", "resource", "operation", "system")
_LINE = re.compile(r'HWS_ERROR\(\s*([A-Z0-9_]+)\s*,\s*(-[0-9]+)\s*,\s*(\w+)\s*,\s*"([^"]+)"\s*,\s*(\w+)\s*\)')


def read_errors(path: str, text: str, problems: list[Problem]) -> list[Error]:
    errors: list[Error] = []
    for number, line in enumerate(scan(path, text).code, 1):
        if not line.strip():
            continue
        m = _LINE.fullmatch(line.strip())
        if m is None:
            problems.append(Problem(path, number, 'a line is HWS_ERROR(NAME, -number, category, "text", UCS_STATUS)'))
            continue
        name, code, category, message, ucx = m.groups()
        if category not in CATEGORIES:
            problems.append(Problem(path, number, f"{name}: the category is one of {', '.join(CATEGORIES)}"))
        for other in errors:
            if other.name == name or other.code == int(code):
                problems.append(Problem(path, number, f"{name} {code}: {other.name} {other.code} is there already"))
        errors.append(Error(name, int(code), category, message, None if ucx == "UCS_OK" else ucx))
    if not errors:
        problems.append(Problem(path, 1, "no HWS_ERROR line"))
    return errors


def match_header(
    path: str, errors: list[Error], constants: list[Constant], lines: dict[str, int], problems: list[Problem]
) -> None:
    """Every code stands in both files with the same number."""
    defined = {c.name: c.value for c in constants if c.name.startswith("HWS_E_")}
    for e in errors:
        name = "HWS_E_" + e.name
        if name not in defined:
            problems.append(Problem(path, 1, f"{name} stands in errors.def but not here"))
        elif defined[name] != e.code:
            problems.append(
                Problem(path, lines.get(name, 1), f"{name} is {defined[name]} here and {e.code} in errors.def")
            )
    for name in defined.keys() - {"HWS_E_" + e.name for e in errors}:
        problems.append(Problem(path, lines.get(name, 1), f"{name} is missing in errors.def"))
