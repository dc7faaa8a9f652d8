"""The command hawser-bindgen: a description of the ABI in, the files of one language out."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

from .emitters import BUILTIN
from .files import published
from .model import Abi, load
from .report import Refused, say

Emit = Callable[[Abi], dict[str, str]]


def find(name: str) -> Emit:
    """A built-in emitter by its name, or the function `emit` of a Python file."""
    if name in BUILTIN:
        emit: Emit = BUILTIN[name].emit
        return emit
    path = Path(name)
    if not path.is_file():
        raise SystemExit(f"hawser-bindgen: {name}: neither a file nor one of {', '.join(BUILTIN)}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"hawser-bindgen: {name}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, "emit", None)):
        raise SystemExit(f"hawser-bindgen: {name}: no function emit(abi)")
    found: Emit = module.emit
    return found


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="hawser-bindgen", description="Make a binding's files from the description of Hawser's ABI."
    )
    parser.add_argument("emitter", nargs="*", help="a built-in emitter, or a Python file with emit(abi)")
    parser.add_argument("--abi", type=Path, default=published("abi.json"), help="abi.json")
    parser.add_argument("--out", type=Path, default=Path("."), help="where the files are written (default: here)")
    parser.add_argument("--list", action="store_true", help="print the built-in emitters")
    args = parser.parse_args(argv)
    if args.list:
        for name, module in BUILTIN.items():
            say(f"{name:18} {(module.__doc__ or '').strip()}")
        return 0
    if not args.emitter:
        parser.error("name an emitter (--list prints the built-in ones)")
    try:
        abi = load(args.abi)
        for name in args.emitter:
            files = find(name)(abi)
            if not isinstance(files, dict):
                raise SystemExit(f"hawser-bindgen: {name}: emit(abi) gave no dict of file name -> text")
            write(args.out, files)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"hawser-bindgen: {error}", file=sys.stderr)
        return 2
    return 0


def write(out: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        target = out / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        say(f"wrote {target}")


def program() -> None:
    """The entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))
