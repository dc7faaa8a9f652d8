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

ABI = read()
FUNCTIONS = {f.name: f for f in ABI.functions}
CODES = {e.name: e.code for e in ABI.errors}


def vectors(*names: str) -> list[dict[str, Any]]:
    return [v for name in names for v in json.loads((ROOT / "abi" / "vectors" / f"{name}.json").read_text())["vectors"]]


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
    return {"name": vector["name"], "call": f.name.removeprefix("hws_"), "args": args}


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

    def agree(self, found: dict[str, int], wanted: list[dict[str, Any]], least: int) -> None:
        expected = {v["name"]: CODES[v["expect"]] for v in wanted if v["name"] in found}
        self.assertEqual(found, expected)
        self.assertGreater(len(found), least)
        print(f"ok: {self.id().rpartition('.')[2]}: {len(found)} of {len(wanted)} vectors give the documented code")

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
        hawser = swig_module.load()
        from hawser._errors import HawserError

        ids = living_and_stale(hawser)
        found: dict[str, int] = {}
        wanted = vectors("ids")
        for vector in filter(None, map(for_swig, wanted)):
            args = [self.value(ids, given) for given in vector["args"]]
            try:
                getattr(hawser, vector["call"])(*args)
                found[vector["name"]] = 0
            except HawserError as error:
                found[vector["name"]] = error.code
                self.assertTrue(error.text)
        self.agree(found, wanted, 300)

    def value(self, ids: dict[str, int], given: dict[str, Any]) -> Any:
        if "id" in given:
            return ids[given["id"]]
        return bytearray(given["memory"]) if "memory" in given else given["value"]

    def test_swig_lua(self) -> None:
        if not (Path(os.environ["HAWSER_BUILD_DIR"]) / "swig" / "lua" / "hawser" / "swig.so").exists():
            self.skipTest("the SWIG module for Lua was not built")
        if not shutil.which("lua5.4"):
            self.skipTest("lua5.4 is not installed")
        wanted = vectors("ids")
        chosen = list(filter(None, map(for_swig, wanted)))
        self.agree(self.run_lua("lua5.4", "replay_swig.lua", chosen), wanted, 300)

    def test_luajit(self) -> None:
        if not shutil.which("luajit"):
            self.skipTest("luajit is not installed")
        wanted = vectors("ids", "pointers", "sizes")
        self.agree(self.run_lua("luajit", "replay_luajit.lua", wanted), wanted, 400)


def open_each(hawser: Any) -> dict[str, int]:
    pair = swig_module.Pair(hawser, 31)
    options = {"queue": pair.queue}
    _, op = hawser.tag_recv(pair.server, bytearray(8), 99, 2**64 - 1)
    hawser.tag_send(pair.client, b"message", 1, options)
    pair.take(lambda e: e["kind"] == hawser.EVENT_TAG_SEND)
    message = None
    while message is None:
        try:
            _, message = hawser.tag_probe(pair.server, 1, 2**64 - 1)
        except LookupError:
            hawser.worker_progress(pair.worker)
    hawser.am_handler(pair.worker, 1, {"sink": options})
    hawser.am_send(pair.client, 1, b"h", b"data", options)
    buffer = pair.take(lambda e: e["kind"] == hawser.EVENT_AM)["detail"]["buffer"]
    ids = {
        "context": pair.context,
        "worker": pair.worker,
        "listener": pair.listener,
        "endpoint": pair.server,
        "queue": hawser.queue_open(),
        "op": op,
        "message": message,
        "buffer": buffer,
    }
    ids["memory"] = hawser.mem_alloc(pair.context, 4096)
    ids["rkey"] = hawser.rkey_unpack(pair.server, hawser.rkey_pack(ids["memory"], 0), 0)
    nothing = {"kind": hawser.EVENT_GET, "rkey": ids["rkey"], "address": hawser.mem_query(ids["memory"])["base"]}
    ids["plan"] = hawser.plan_open(pair.server, [nothing])
    return ids


def living_and_stale(hawser: Any) -> dict[str, int]:
    gone = open_each(hawser)
    hawser.cancel(gone["op"])
    hawser.wait(gone["op"], 10**10)
    for kind in ("message", "buffer", "queue"):
        hawser.close(gone[kind])
    hawser.close_wait(gone["context"], 10**10)
    stale = {f"stale {kind}": id for kind, id in gone.items()}
    return {"zero": 0, "random": 2**53 - 1} | stale | open_each(hawser)


if __name__ == "__main__":
    unittest.main(verbosity=2)
