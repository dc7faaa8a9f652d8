"""Man pages: one of section 3 for each function."""

from __future__ import annotations

import re

from ..model import HEADING, Abi, Function
from .ctext import declare
from .reference import kind

FOLDER = "docs/man"

_THREADS = {
    "any": "Callable from every thread at any time, also inside a callback.",
    "outside": "Not to be called inside a callback.",
}


def emit(abi: Abi) -> dict[str, str]:
    return {f"{FOLDER}/{f.name}.3": _page(abi, f) for f in abi.functions}


def roff(text: str) -> str:
    """Text that no line of which is a request, and in which hyphens and backslashes are themselves."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    paragraphs = [
        "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in p.split("\n"))
        for p in text.split("\n\n")
    ]
    return "\n.PP\n".join(paragraphs)


def _page(abi: Abi, f: Function) -> str:
    brief = f.brief.rstrip(".")
    parts = [
        f'.\\" {HEADING}.\n.TH {f.name.upper()} 3 "" "Hawser {abi.version}" "Hawser"\n',
        f".SH NAME\n{f.name} \\- {roff(brief[0].lower() + brief[1:])}\n",
        f".SH SYNOPSIS\n.nf\n.B #include <hawser.h>\n.PP\n{_synopsis(f)}\n.fi\n",
        f".SH DESCRIPTION\n{roff(f.doc)}\n",
    ]
    if f.args:
        rows = "".join(f".TP\n.I {a.name}\n{roff(': '.join(p for p in (kind(a), a.doc) if p))}\n" for a in f.args)
        parts.append(f".SH ARGUMENTS\n{rows}")
    if f.return_doc:
        parts.append(f".SH RETURN VALUE\n{roff(f.return_doc)}\n")
    parts.append(_errors(abi, f))
    parts.append(
        f".SH THREADS AND MEMORY\n{_THREADS[f.thread]}\nBlocks: {roff(f.blocks)}.\nOwnership: {roff(f.owns)}.\n"
    )
    parts.append(f".SH VERSIONS\nSince {f.since}.")
    parts.append(f"\nStands on {roff(', '.join(f.ucx))}.\n" if f.ucx else "\n")
    parts.append(_see_also(abi, f))
    return "".join(parts)


def _synopsis(f: Function) -> str:
    args = [declare(a.type, a.name) for a in f.args] or ["void"]
    head = f"{declare(f.returns, f.name)}("
    lines, line = [], head
    for i, arg in enumerate(args):
        text = arg + (", " if i + 1 < len(args) else ");")
        if len(line) + len(text) > 78:
            lines.append(line.rstrip())
            line = "    "
        line += text
    lines.append(line)
    return "\n".join(f'.B "{roff(x)}"' for x in lines)


def _errors(abi: Abi, f: Function) -> str:
    texts = {f"HWS_E_{e.name}": e.text for e in abi.errors}
    rows = "".join(f".TP\n.B {code}\n{roff(texts[code])}\n" for code in f.codes if code in texts)
    return f".SH ERRORS\n{rows}" if rows else ""


def _see_also(abi: Abi, f: Function) -> str:
    """The functions its text names, then those of its section."""
    text = f.doc + f.return_doc + "".join(a.doc for a in f.args)
    names = [n for n in re.findall(r"\bhws_\w+(?=\(\))", text) if n != f.name]
    names += [g.name for g in abi.functions if g.section == f.section and g.name != f.name]
    known = {g.name for g in abi.functions}
    unique = [n for n in dict.fromkeys(names) if n in known][:8]
    return ".SH SEE ALSO\n" + ",\n".join(f".BR {n} (3)" for n in unique) + "\n" if unique else ""
