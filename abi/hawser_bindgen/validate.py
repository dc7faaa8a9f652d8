"""abi.json against its published schema."""

from __future__ import annotations

import json

import jsonschema

from .files import published
from .report import Problem, Refused

SCHEMA = published("abi.schema.json")


def validate(text: str, path: str) -> None:
    """Raises Refused, with the place inside the document, if the text is not a description of an ABI."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise Refused([Problem(path, error.lineno, f"not JSON: {error.msg}")]) from None
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    problems = [
        Problem(path, 1, f"{'/'.join(str(part) for part in error.absolute_path) or 'document'}: {error.message[:200]}")
        for error in validator.iter_errors(document)
    ]
    if problems:
        raise Refused(problems)
