"""Finds what a C parser loses: comments, preprocessor lines, and the line on which each stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .report import Problem, Refused, refuse


@dataclass(frozen=True)
class Comment:
    line: int
    end_line: int
    text: str  # between the delimiters
    doc: bool  # opened by /**
    alone: bool  # nothing stands before it on its first line


@dataclass(frozen=True)
class Directive:
    line: int
    end_line: int
    word: str  # "define", "if", ...
    rest: str  # continuation lines joined, comments removed


@dataclass
class Source:
    path: str
    raw: list[str]
    code: list[str]  # as raw, with comments and preprocessor lines blanked
    comments: list[Comment] = field(default_factory=list)
    directives: list[Directive] = field(default_factory=list)

    def trailing(self, line: int) -> str:
        """The plain comment that starts on a line behind something, on one line; "" if there is none."""
        for c in self.comments:
            if c.line == line and not c.alone and not c.doc:
                return squeeze(c.text)
        return ""

    def doc_before(self, line: int) -> Comment | None:
        """The doc comment that ends directly above a line."""
        for c in self.comments:
            if c.doc and c.end_line == line - 1:
                return c
        return None


def squeeze(text: str) -> str:
    """A comment's text on one line, without the asterisks that start its lines."""
    return " ".join(re.sub(r"^[ \t]*\*+", "", text, flags=re.MULTILINE).split())


def blank(text: str) -> str:
    """The same text with everything but line ends turned to spaces: lines and columns stay."""
    return re.sub(r"[^\n]", " ", text)


_TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|/\*', re.DOTALL)


def scan(path: str, text: str) -> Source:
    """Split a header into code, comments and directives. Refuses // and comments without an end."""
    comments: list[Comment] = []
    problems: list[Problem] = []
    pieces: list[str] = []
    at = 0
    for m in _TOKEN.finditer(text):
        token, line = m.group(), text.count("\n", 0, m.start()) + 1
        pieces.append(text[at : m.start()])
        at = m.end()
        if token.startswith('"'):
            pieces.append(token)
            continue
        if token == "/*":
            raise refuse(path, line, "a comment without an end")
        if token.startswith("//"):
            problems.append(Problem(path, line, "comments are /* */, not //"))
        else:
            start = text.rfind("\n", 0, m.start()) + 1
            doc = token.startswith("/**") and len(token) > 5
            comments.append(
                Comment(
                    line=line,
                    end_line=line + token.count("\n"),
                    text=token[3 if doc else 2 : -2],
                    doc=doc,
                    alone=not text[start : m.start()].strip(),
                )
            )
        pieces.append(blank(token))
    pieces.append(text[at:])
    if problems:
        raise Refused(problems)
    source = Source(path, text.split("\n"), "".join(pieces).split("\n"), comments)
    _take_directives(source)
    return source


def _take_directives(source: Source) -> None:
    number = 0
    while number < len(source.code):
        first = number
        if not source.code[first].lstrip().startswith("#"):
            number += 1
            continue
        # A comment may stand behind the backslash's line but never behind the backslash itself.
        parts = []
        while source.code[number].rstrip().endswith("\\"):
            parts.append(source.code[number].rstrip()[:-1])
            source.code[number] = ""
            number += 1
        parts.append(source.code[number])
        source.code[number] = ""
        number += 1
        m = re.match(r"\s*#\s*(\w*)\s*(.*)", " ".join(parts).rstrip(), re.DOTALL)
        assert m is not None
        source.directives.append(Directive(first + 1, number, m.group(1), " ".join(m.group(2).split())))
