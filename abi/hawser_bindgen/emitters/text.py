"""Pieces of text that emitters share."""

from __future__ import annotations

import textwrap

from ..model import HEADING


def heading(prefix: str, what: str) -> str:
    """A comment's first lines: what the file is, and that it is generated."""
    return f"{prefix} {what}\n{prefix} {HEADING}.\n"


def wrap(text: str, indent: str = "", width: int = 110) -> str:
    """Paragraphs filled to lines."""
    return "\n\n".join(
        textwrap.fill(p, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
        for p in text.split("\n\n")
    )


def docstring(text: str, indent: str) -> str:
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    if "\n\n" not in text and len(text) + len(indent) < 104:
        return f'{indent}"""{text}"""\n'
    return f'{indent}"""\n{wrap(text, indent)}\n{indent}"""\n'


def all_list(names: list[str]) -> str:
    """Python's __all__: constants, then classes, then functions."""
    key = sorted(names, key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n))
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in key) + "]\n"
