"""What the commands print. Of a wrong input: file, line and reason, as compilers do."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path


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


def read_text(path: Path, shown: str) -> str:
    """A file that must be there and be text."""
    try:
        data = path.read_bytes()
        return data.decode()
    except OSError as error:
        raise refuse(shown, 1, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise refuse(shown, data.count(b"\n", 0, error.start) + 1, "not UTF-8") from None


def say(line: str) -> None:
    """Print a line. That its reader has seen enough (`| head`) must not stop what is being written."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
