# UCX: both
# TIMEOUT: 120
"""Programs built for older and newer versions of the ABI run on this library, or are told that they are newer."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from bindgen import ROOT, read
from hawser_bindgen.emitters import c_header
from hawser_bindgen.model import Abi, Field, Type, from_json

OLDEST = ROOT / "abi" / "releases" / "0.1.json"


def released() -> Abi:
    document = json.loads(OLDEST.read_text(encoding="utf-8"))
    document.pop("changed", None)
    return from_json(json.dumps(document))


def older(abi: Abi) -> Abi:
    """Every sized structure without its last eight bytes: how a version looked before they were added."""
    abi = copy.deepcopy(abi)
    for s in abi.structs:
        needed = {"struct_size", "port", "name", "sink", "endpoint_sink", "queue", "code", "text"}
        end = max((f.offset + f.size for f in s.fields if f.name in needed), default=8)
        if s.sized and s.size - 8 >= max(end, 8):
            s.size -= 8
            s.fields = [f for f in s.fields if f.offset + f.size <= s.size]
    return abi


def newer(abi: Abi) -> Abi:
    """Every sized structure with one more field."""
    abi = copy.deepcopy(abi)
    for s in abi.structs:
        if s.sized:
            s.fields.append(Field("newest", Type("uint64_t", "uint64_t"), None, s.size, 8, False, ""))
            s.size += 8
    return abi


class Consumer(unittest.TestCase):
    def run_with(self, abi: Abi, *flags: str) -> subprocess.CompletedProcess[str]:
        library = Path(os.environ["HAWSER_LIBRARY"])
        with tempfile.TemporaryDirectory() as folder:
            for name, text in c_header.emit(abi).items():
                (Path(folder) / name).write_text(text)
            program = str(Path(folder) / "consumer")
            words = [os.environ.get("HAWSER_CC", "cc"), "-std=c11", "-Wall", "-Werror", f"-I{folder}", *flags]
            words += [str(ROOT / "tests" / "abi" / "consumer.c"), "-o", program, str(library)]
            subprocess.run(words, check=True, timeout=60)
            environment = os.environ | {"LD_LIBRARY_PATH": str(library.parent)}
            return subprocess.run([program], capture_output=True, text=True, timeout=60, env=environment)

    def test_the_first_release(self) -> None:
        done = self.run_with(released())
        print(done.stdout, end="")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_one_that_knows_less(self) -> None:
        smaller = older(released())
        shrunk = [s.name for s, t in zip(smaller.structs, released().structs, strict=True) if s.size < t.size]
        self.assertIn("hws_worker_opts", shrunk)
        self.assertIn("hws_op_opts", shrunk)
        done = self.run_with(smaller)
        print(done.stdout, end="")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_one_that_knows_more_and_does_not_use_it(self) -> None:
        done = self.run_with(newer(read()))
        print(done.stdout, end="")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_one_that_uses_more_is_told(self) -> None:
        done = self.run_with(newer(read()), "-DNEWER")
        print(done.stdout, end="")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("hws_worker_open", done.stdout)
        self.assertIn("NEWER worker options", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
