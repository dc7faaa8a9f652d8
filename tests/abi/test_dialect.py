"""A header outside the dialect is refused with file, line and reason; inside it, nothing is lost."""

from __future__ import annotations

import re
import unittest

from bindgen import ERRORS, HEADER, change, read
from hawser_bindgen.model import Abi
from hawser_bindgen.report import Refused

FUNCTION = """/**
 * Does it.
 * @return 0, HWS_E_INVALID
 * @thread any  @blocks no  @owns nothing  @since 0.1
 */
"""
MINI = """#ifndef HAWSER_H
#define HAWSER_H
#include <stdint.h>
#if defined(__cplusplus)
extern "C" {
#endif
#define HWS_API
#define HWS_VERSION_MAJOR 0
#define HWS_VERSION_MINOR 1
#define HWS_VERSION_PATCH 0
#define HWS_ABI_VERSION 1

#define HWS_KIND_WORKER 2
#define HWS_KIND_ENDPOINT 4

#define HWS_E_INVALID (-1)

typedef uint64_t hws_id;
@
#endif
"""
MINI_ERRORS = 'HWS_ERROR(INVALID, -1, usage, "invalid", UCS_OK)\n'
START = MINI[: MINI.index("@")].count("\n") + 1


def mini(text: str) -> Abi:
    return read(MINI.replace("@", text), MINI_ERRORS)


class Dialect(unittest.TestCase):
    def refused(self, text: str, line: int, reason: str) -> None:
        """`line` counts from the first line of `text`."""
        with self.assertRaises(Refused) as caught:
            mini(text)
        found = [(p.path, p.line) for p in caught.exception.problems if reason in p.reason]
        self.assertIn(("hawser.h", START + line - 1), found, f"wanted {reason!r}, got:\n{caught.exception}")

    def test_accepts_the_minimum(self) -> None:
        abi = mini(FUNCTION + "HWS_API int32_t hws_do(hws_id worker);")
        self.assertEqual([f.name for f in abi.functions], ["hws_do"])

    def test_forbidden_words(self) -> None:
        for text, reason in {
            "enum e { A };": "not enum",
            "typedef struct hws_a { int x; } hws_a;": "fixed-width",
            "typedef struct hws_a { long x; } hws_a;": "fixed-width",
            "typedef struct hws_a { size_t x; } hws_a;": "size_t",
            "typedef struct hws_a { bool x; } hws_a;": "boolean",
            "typedef union hws_u { uint32_t x; } hws_u;": "union",
            "static inline uint32_t hws_f(void);": "inline",
            FUNCTION.replace("\n", " ") + "HWS_API int32_t hws_f(uint32_t a, ...);": "variable",
        }.items():
            with self.subTest(text):
                self.refused("\n" + text, 2, reason)

    def test_directives(self) -> None:
        self.refused("\n\n#define HWS_MAX(a, b) a", 3, "no macros with arguments")
        self.refused("#define OTHER 1", 1, "start with HWS_")
        self.refused("#define HWS_X (1 + 2)", 1, "plain number")
        self.refused("#define HWS_X \\\n    other", 1, "plain number")
        self.refused("#include <stdio.h>", 1, "only")
        self.refused("\n#pragma once", 2, "not in the dialect")
        self.refused("#if HWS_X > 1\n#endif", 1, "not in the dialect")

    def test_comments(self) -> None:
        self.refused("// no", 1, "not //")
        self.refused("\n/* no end", 2, "without an end")

    def test_structures(self) -> None:
        self.refused("typedef struct hws_a {\n    uint32_t x : 3;\n} hws_a;", 2, "bit-fields")
        self.refused("typedef struct hws_a {\n    uint32_t x;\n    uint64_t y;\n} hws_a;", 3, "padding before y")
        self.refused("typedef struct hws_a {\n    uint64_t x;\n    uint32_t y;\n} hws_a;", 1, "padding at its end")
        self.refused("typedef struct hws_a_opts {\n    uint32_t flags;\n} hws_a_opts;", 1, "struct_size")
        self.refused("typedef struct hws_b {\n    hws_a x;\n} hws_b;", 1, "not C")
        self.refused("typedef struct other {\n    uint32_t x;\n} other;", 1, "start with hws_")
        self.refused("typedef struct hws_a {\n    void (*f)(void *x);\n} hws_a;", 2, "typedef of its own")
        self.refused("typedef uint32_t hws_number;", 1, "only structs")

    def test_functions(self) -> None:
        pair = "typedef struct hws_a {\n    uint64_t x;\n} hws_a;\n"
        after = 3 + FUNCTION.count("\n") + 1
        self.refused(f"{pair}{FUNCTION}HWS_API int32_t hws_f(hws_a a);", after, "by value")
        self.refused(f"{pair}{FUNCTION}HWS_API hws_a hws_f(void);", 4, "a number, or a constant text")
        self.refused(f"{FUNCTION}HWS_API int32_t hws_f(hws_id thing);", 6, "which kinds")
        self.refused(f"{FUNCTION}HWS_API int32_t hws_F(void);", 6, "words_like_this")
        self.refused(f"{FUNCTION}int32_t hws_f(void);", 6, "HWS_API")
        self.refused("HWS_API int32_t hws_f(void);", 1, "no doc comment")

    def test_tags(self) -> None:
        for tag in ("thread", "blocks", "owns", "since", "return"):
            self.refused(f"{FUNCTION.replace('@' + tag, 'at')}HWS_API int32_t hws_f(void);", 1, f"no @{tag}")
        self.refused(
            f"{FUNCTION.replace('@return', '@returns')}HWS_API int32_t hws_f(void);", 3, "unknown tag @returns"
        )
        self.refused(f"{FUNCTION.replace('any', 'some')}HWS_API int32_t hws_f(void);", 1, "any or outside")
        self.refused(f"{FUNCTION.replace('0.1', 'now')}HWS_API int32_t hws_f(void);", 1, "a version")
        wrong = FUNCTION.replace("@return", "@param x  there is none\n * @return")
        self.refused(f"{wrong}HWS_API int32_t hws_f(void);", 7, "no such argument")

    def test_errors(self) -> None:
        for line, reason in {
            'HWS_ERROR(INVALID, -2, usage, "x", UCS_OK)': "is -1 here and -2",
            'HWS_ERROR(INVALID, -1, odd, "x", UCS_OK)': "category",
            "HWS_ERROR(INVALID, -1)": "a line is",
            'HWS_ERROR(INVALID, -1, usage, "x", UCS_OK)\nHWS_ERROR(OTHER, -1, usage, "x", UCS_OK)': "there already",
            'HWS_ERROR(OTHER, -1, usage, "x", UCS_OK)': "missing in errors.def",
        }.items():
            with self.subTest(line), self.assertRaises(Refused) as caught:
                read(MINI.replace("@", ""), line + "\n")
            self.assertIn(reason, str(caught.exception))

    def test_every_problem_is_told_at_once(self) -> None:
        with self.assertRaises(Refused) as caught:
            mini("typedef struct hws_a { int x; long y; } hws_a;\nenum e { A };")
        self.assertEqual(len(caught.exception.problems), 3)


class Reading(unittest.TestCase):
    def test_constants(self) -> None:
        abi = mini(
            "/** Ways to go. hws_a_opts.flags */\n#define HWS_WAY_LEFT 1 /* not\n right */\n"
            "#define HWS_WAY_RIGHT \\\n    0x2 /* the other */\n\n/** The end of time. */\n#define HWS_END UINT64_MAX"
        )
        group = next(g for g in abi.groups if g.prefix == "HWS_WAY_")
        self.assertEqual((group.name, group.flags, group.members), ("WayFlag", True, ["HWS_WAY_LEFT", "HWS_WAY_RIGHT"]))
        self.assertEqual(abi.constant("HWS_WAY_LEFT").doc, "not right")
        self.assertEqual((abi.constant("HWS_WAY_RIGHT").value, abi.constant("HWS_WAY_RIGHT").doc), (2, "the other"))
        end = abi.constant("HWS_END")
        self.assertEqual((end.value, end.ctype, end.group, end.doc), (2**64 - 1, "uint64_t", None, "The end of time."))

    def test_groups_are_named_by_their_tag(self) -> None:
        abi = mini("/** What.  @group Thing */\n#define HWS_T_A 0\n#define HWS_T_B 1")
        self.assertEqual([(g.name, g.flags, g.doc) for g in abi.groups][-1], ("Thing", False, "What."))

    def test_arguments(self) -> None:
        abi = mini(
            "typedef struct hws_a_opts {\n    uint32_t struct_size;\n    uint32_t flags;\n} hws_a_opts;\n"
            "/** Told. */\ntypedef void (*hws_told_fn)(void *arg, uint32_t what);\n/**\n"
            " * Sends it. More on this.\n *\n * A paragraph.\n"
            " * @param source    endpoint or worker\n * @param fn        nullable\n"
            " * @param[out] text room for `size` bytes; nullable\n"
            " * @param[in,out] ops changed\n"
            " * @return 0, HWS_E_INVALID if it is\n"
            " * @thread outside  @blocks up to a second\n"
            " * @owns nothing  @since 0.2  @ucx ucp_tag_send_nbx and more\n */\n"
            "HWS_API int32_t hws_send(hws_id source, const void *header, uint64_t header_length, char *text,\n"
            "    uint64_t size, hws_id *ops, uint32_t count, const hws_a_opts *opts, hws_told_fn fn, void *arg,\n"
            "    const char *name, void **data, hws_id *op);"
        )
        f = abi.functions[0]
        self.assertEqual((f.brief, f.thread, f.blocking, f.blocks), ("Sends it.", "outside", True, "up to a second"))
        self.assertEqual((f.since, f.ucx, f.codes, f.posts), ("0.2", ["ucp_tag_send_nbx"], ["HWS_E_INVALID"], True))
        self.assertEqual(f.doc, "Sends it. More on this.\n\nA paragraph.")
        short = [(a.name, a.role, a.direction, a.nullable, a.length) for a in f.args]
        self.assertEqual(
            short,
            [
                ("source", "id", "in", False, None),
                ("header", "buffer", "in", False, "header_length"),
                ("header_length", "value", "in", False, None),
                ("text", "buffer", "out", True, "size"),
                ("size", "value", "in", False, None),
                ("ops", "array", "inout", False, "count"),
                ("count", "value", "in", False, None),
                ("opts", "options", "in", True, None),
                ("fn", "callback", "in", True, None),
                ("arg", "user", "in", True, None),
                ("name", "text", "in", False, None),
                ("data", "out", "out", False, None),
                ("op", "out", "out", True, None),
            ],
        )
        self.assertEqual(f.args[0].kinds, ["endpoint", "worker"])

    def test_an_at_inside_a_sentence_is_no_tag(self) -> None:
        abi = mini(
            FUNCTION.replace("Does it.", "Does it, as `@thread any` says, by a@b.") + "HWS_API int32_t hws_f(void);"
        )
        self.assertEqual(abi.functions[0].doc, "Does it, as `@thread any` says, by a@b.")

    def test_layout(self) -> None:
        abi = mini(
            "typedef struct hws_a {\n    uint16_t x[3];\n    uint16_t y;\n"
            "    const char *z; /* a name; nullable */\n} hws_a;\n"
            "typedef struct hws_b {\n    hws_a a;\n    char text[16];\n} hws_b;"
        )
        self.assertEqual([(s.size, s.align) for s in abi.structs], [(16, 8), (32, 8)])
        z = abi.structs[0].fields[2]
        self.assertEqual(
            (z.offset, z.size, z.nullable, z.doc, z.type.c), (8, 8, True, "a name; nullable", "const char *")
        )

    def test_the_header_itself(self) -> None:
        abi = read()
        declared = HEADER.count("\nHWS_API ")
        self.assertGreater(declared, 40)
        self.assertEqual(len(abi.functions), declared)
        self.assertEqual(len(abi.errors), ERRORS.count("\nHWS_ERROR("))
        self.assertEqual(len(abi.structs), len(re.findall(r"^(?:typedef )?struct hws_\w+ \{", HEADER, re.MULTILINE)))
        self.assertEqual({f.section for f in abi.functions} - {s.name for s in abi.sections}, set())
        with self.assertRaises(Refused) as caught:
            read(change(HEADER, "uint32_t kind;\n    hws_id op;", "int kind;\n    hws_id op;"))
        line = HEADER[: HEADER.index("uint32_t kind;\n    hws_id op;")].count("\n") + 1
        self.assertIn(f"hawser.h:{line}: `int`", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
