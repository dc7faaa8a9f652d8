"""Every function is in every binding, or in abi/exclusions.json with a reason."""

from __future__ import annotations

import json
import re
import unittest

from bindgen import ROOT, read

ABI = read()
FUNCTIONS = {f.name for f in ABI.functions}
TYPES = {s.name for s in ABI.structs} | {c.name for c in ABI.callbacks} | {"hws_id"}

#: Binding -> the files that hold its declarations, and what a declaration of a function looks like there.
BINDINGS = {
    "symbol-map": ("abi/generated/hawser.map", r"^        (hws_\w+);"),
    "layout-probe": ("abi/generated/layout.c", r"^\w[\w ]*\*? ?\*?(hws_\w+)\("),
    "swig-python": ("abi/generated/python/_swig.i", r"^\w[\w ]*\*? ?\*?(hws_\w+)\("),
    "swig-lua": ("abi/generated/lua/hawser_swig.i", r"^\w[\w ]*\*? ?\*?(hws_\w+)\("),
    "luajit": ("bindings/lua/hawser/cdef.lua", r"^\w[\w ]*\*? ?\*?(hws_\w+)\("),
    # Written by hand: what it calls.
    "python-extension": ("bindings/python/ext/*.c", r"\b(hws_\w+)"),
    "rust": ("bindings/rust-sys/src/bindings.rs", r"^    pub fn (hws_\w+)\("),
    "man-pages": ("docs/man/*.3", r"^\.TH (HWS_\w+) 3"),
    "reference": ("docs/reference/functions.md", r"^### (hws_\w+)$"),
}


def declared(binding: str) -> set[str]:
    pattern, expression = BINDINGS[binding]
    texts = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern))]
    # A function that only a comment names is not there.
    texts = [re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL) if pattern.endswith(".c") else text for text in texts]
    return {name.lower() for text in texts for name in re.findall(expression, text, re.MULTILINE)} - TYPES


class Coverage(unittest.TestCase):
    def test_every_function_in_every_binding(self) -> None:
        excluded = json.loads((ROOT / "abi" / "exclusions.json").read_text(encoding="utf-8"))
        self.assertLessEqual(set(excluded), set(BINDINGS), "a binding that is not known here")
        for binding in BINDINGS:
            with self.subTest(binding):
                reasons: dict[str, str] = excluded.get(binding, {})
                found = declared(binding)
                self.assertEqual(sorted(FUNCTIONS - found - set(reasons)), [], "neither there nor excluded")
                self.assertEqual(sorted(found - FUNCTIONS), [], "not a function of the ABI")
                self.assertEqual(sorted(set(reasons) & found), [], "excluded, but there")
                self.assertEqual(sorted(set(reasons) - FUNCTIONS), [], "excluded, but no function of the ABI")
                for name, reason in reasons.items():
                    self.assertGreater(len(reason), 20, f"{name}: that is no reason")
                print(f"ok: {binding}: {len(found)} of {len(FUNCTIONS)} functions")


if __name__ == "__main__":
    unittest.main()
