"""The tags of a doc comment: `@param[out] name text`, `@return`, `@thread`, `@blocks`, `@owns`, `@since`, `@ucx`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .report import Problem
from .scanner import Comment

#: Tags of a function, those of them that it must have, and the one tag of a group of constants.
KNOWN = ("param", "return", "thread", "blocks", "owns", "since", "ucx", "group")
MANDATORY = ("thread", "blocks", "owns", "since")

# A tag starts a line, or follows two spaces: an @word inside a sentence is no tag.
_TAG = re.compile(r"(?:^[ ]*|  )@(\w+)(?:\[([\w,]*)\])?[ ]?", re.MULTILINE)
_DIRECTIONS = {"in": "in", "out": "out", "in,out": "inout"}


@dataclass
class Param:
    direction: str | None
    text: str


@dataclass
class Doc:
    line: int
    brief: str = ""  # the first sentence
    text: str = ""  # everything before the first tag, paragraphs separated by an empty line
    params: dict[str, Param] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


def parse_doc(path: str, comment: Comment) -> tuple[Doc, list[Problem]]:
    lines = [re.sub(r"^[ \t]*\*[ ]?", "", line) for line in comment.text.split("\n")]
    text = "\n".join(lines)
    doc = Doc(comment.line)
    problems: list[Problem] = []
    tags = list(_TAG.finditer(text))
    doc.text = _paragraphs(text[: tags[0].start()] if tags else text)
    doc.brief = _first_sentence(doc.text)
    for i, tag in enumerate(tags):
        end = tags[i + 1].start() if i + 1 < len(tags) else len(text)
        line = comment.line + text.count("\n", 0, tag.end())
        _take_tag(doc, tag, " ".join(text[tag.end() : end].split()), path, line, problems)
    return doc, problems


def _take_tag(doc: Doc, tag: re.Match[str], value: str, path: str, line: int, problems: list[Problem]) -> None:
    name, option = tag.group(1), tag.group(2)
    if name not in KNOWN:
        problems.append(Problem(path, line, f"unknown tag @{name} (known: @{', @'.join(KNOWN)})"))
    elif not value:
        problems.append(Problem(path, line, f"@{name} says nothing"))
    elif name == "param":
        param, _, rest = value.partition(" ")
        if option is not None and option not in _DIRECTIONS:
            problems.append(Problem(path, line, f"@param[{option}]: the direction is in, out or in,out"))
        elif param in doc.params:
            problems.append(Problem(path, line, f"@param {param} stands twice"))
        else:
            doc.params[param] = Param(_DIRECTIONS[option] if option else None, rest.strip())
    elif name in doc.tags:
        problems.append(Problem(path, line, f"@{name} stands twice"))
    else:
        doc.tags[name] = value


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(p.split()) for p in re.split(r"\n[ \t]*\n", text.strip()))


def _first_sentence(text: str) -> str:
    first = text.split("\n\n")[0]
    m = re.match(r"(.*?[.])(?: |$)", first)
    return m.group(1) if m else first
