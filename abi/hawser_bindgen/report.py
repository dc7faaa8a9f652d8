"""What the commands print. Of a wrong input: file, line and reason, as compilers do."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class Refused(Exception):
    """An input outside the dialect; carries every problem that was found."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(str(p) for p in sorted(set(problems))))
        self.problems = sorted(set(problems))


def refuse(path: str, line: int, reason: str) -> Refused:
    return Refused([Problem(path, line, reason)])


def say(line: str) -> None:
    """Print a line. That its reader has seen enough (`| head`) must not stop what is being written."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
