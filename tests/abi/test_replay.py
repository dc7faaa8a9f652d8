# UCX: both
# TIMEOUT: 120
"""The conformance vectors through every binding: each gives the documented code, so all agree result by result."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any

import swig_module
from bindgen import ROOT, read
from hawser_bindgen.emitters import swig_common as common
from world import living_and_stale, vectors

ABI = read()
FUNCTIONS = {f.name: f for f in ABI.functions}
CODES = {e.name: e.code for e in ABI.errors}


def for_swig(vector: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments that a SWIG module takes: lengths and places to fill are its own business."""
    f = FUNCTIONS[vector["function"]]
    if not common.offered(f):
        return None
    inner: set[int] = set()
    absent: set[int] = set()
    for use in common.uses(f):
        inner |= set(range(use.at + 1, use.at + len(use.args)))
        if any(word in use.pattern for word in ("HWS_FILL", "HWS_INFO", "*HWS_EVENT", "HWS_DATA")) or (
            use.args[0].role == "out"
        ):
            absent.add(use.at)
    if f.posts:
        absent.add(len(f.args) - 1)
    args = [simple(g) for i, g in enumerate(vector["args"]) if i not in inner | absent]
    return {"name": vector["name"], "call": f.name.removeprefix("hws_"), "args": args, "expect": vector["expect"]}


def simple(given: dict[str, Any]) -> dict[str, Any]:
    if "id" in given or "memory" in given:
        return given
    if "records" in given or "ids" in given:
        return {"value": []}
    return {"value": given.get("number", given.get("text"))}


def lua(value: Any) -> str:
    """A value as Lua text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'["{k}"] = {lua(v)}' for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return json.dumps(value)


class Replay(unittest.TestCase):
    maxDiff = 4000

    def agree(self, found: dict[str, int], made: list[dict[str, Any]], least: int) -> None:
        """Each call that can be made was made, and gave its code."""
        self.assertEqual(found, {v["name"]: CODES[v["expect"]] for v in made})
        self.assertGreater(len(made), least)
        print(f"ok: {self.id().rpartition('.')[2]}: {len(found)} vectors give the documented code")

    def run_lua(self, program: str, script: str, chosen: list[dict[str, Any]]) -> dict[str, int]:
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
            file.write("return " + lua(chosen))
            file.flush()
            done = subprocess.run(
                [program, str(ROOT / "tests" / "abi" / script), file.name],
                capture_output=True,
                text=True,
                timeout=60,
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        return {name: int(code) for name, code in (line.split("\t") for line in done.stdout.splitlines())}

    def test_swig_python(self) -> None:
        try:
            hawser = swig_module.load()
        except SystemExit:
            self.skipTest("the SWIG module for Python was not built")
        from hawser._errors import HawserError

        ids = living_and_stale(hawser)
        found: dict[str, int] = {}
        made = list(filter(None, map(for_swig, vectors("ids"))))
        for vector in made:
            args = [self.value(ids, given) for given in vector["args"]]
            try:
                getattr(hawser, vector["call"])(*args)
                found[vector["name"]] = 0
            except HawserError as error:
                found[vector["name"]] = error.code
                self.assertTrue(error.text)
        self.agree(found, made, 700)

    def value(self, ids: dict[str, int], given: dict[str, Any]) -> Any:
        if "id" in given:
            return ids[given["id"]]
        return bytearray(given["memory"]) if "memory" in given else given["value"]

    def test_swig_lua(self) -> None:
        if not (Path(os.environ["HAWSER_BUILD_DIR"]) / "swig" / "lua" / "hawser" / "swig.so").exists():
            self.skipTest("the SWIG module for Lua was not built")
        if not shutil.which("lua5.4"):
            self.skipTest("lua5.4 is not installed")
        made = list(filter(None, map(for_swig, vectors("ids"))))
        self.agree(self.run_lua("lua5.4", "replay_swig.lua", made), made, 700)

    def test_luajit(self) -> None:
        if not shutil.which("luajit"):
            self.skipTest("luajit is not installed")
        made = vectors("ids", "pointers", "sizes")
        self.agree(self.run_lua("luajit", "replay_luajit.lua", made), made, 900)


if __name__ == "__main__":
    unittest.main(verbosity=2)
