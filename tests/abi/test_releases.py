"""
Nothing that was released goes away or changes: abi/releases/ keeps the description of each release. Before 1.0 a change
that is meant stands in that file's "changed", and a paragraph of docs/decisions.md says why.
"""

from __future__ import annotations

import json
import unittest

from bindgen import ERRORS, HEADER, ROOT, change, read
from hawser_bindgen.compare import breaks
from hawser_bindgen.model import from_json
from hawser_bindgen.report import Refused
from hawser_bindgen.validate import validate

RELEASES = sorted((ROOT / "abi" / "releases").glob("*.json"))
NOW = read()


class Releases(unittest.TestCase):
    def test_the_first_one_is_there(self) -> None:
        self.assertIn("0.1.json", [p.name for p in RELEASES])

    def test_nothing_is_removed_or_changed(self) -> None:
        decisions = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
        for path in RELEASES:
            document = json.loads(path.read_text(encoding="utf-8"))
            changed: dict[str, str] = document.pop("changed", {})
            validate(json.dumps(document), str(path))
            found = breaks(from_json(json.dumps(document)), NOW)
            unexplained = [b for b in found if b.partition(":")[0] not in changed]
            self.assertEqual(unexplained, [], f"{path.name}: programs built against it would break")
            for name, why in changed.items():
                self.assertTrue(path.stem.startswith("0."), f"{path.name}: after 1.0 nothing changes")
                self.assertIn(name, decisions, f"{name}: docs/decisions.md does not say why it changed ({why})")
                self.assertIn(name, [b.partition(":")[0] for b in found], f"{name} has not changed: remove it")


class Mutations(unittest.TestCase):
    """A copy of the header with one change: the comparison, or the dialect, tells of it by name."""

    def caught(self, header: str, name: str, errors: str = ERRORS) -> None:
        try:
            found = breaks(NOW, read(header, errors))
        except Refused as refused:
            found = [p.reason for p in refused.problems]
        self.assertTrue(any(name in text for text in found), f"{name} was not caught: {found}")

    def test_a_constant_that_changes(self) -> None:
        self.caught(change(HEADER, "HWS_EVENT_STREAM_RECV 4", "HWS_EVENT_STREAM_RECV 44"), "HWS_EVENT_STREAM_RECV")
        self.caught(change(HEADER, "#define HWS_OP_RNDV 32 ", "#define HWS_OP_RNDV 128 "), "HWS_OP_RNDV")

    def test_a_constant_that_goes(self) -> None:
        self.caught(change(HEADER, "#define HWS_LOG_TRACE 5\n", ""), "HWS_LOG_TRACE")

    def test_an_error_that_changes(self) -> None:
        self.caught(change(HEADER, "HWS_E_STALE (-3)", "HWS_E_STALE (-30)"), "HWS_E_STALE")
        both = (
            change(HEADER, "HWS_E_STALE (-3)", "HWS_E_STALE (-30)"),
            change(ERRORS, "STALE,           -3", "STALE, -30"),
        )
        self.caught(both[0], "HWS_E_STALE", both[1])

    def test_a_field_of_another_type(self) -> None:
        self.caught(
            change(HEADER, "    int32_t status; /* 0 or a negative code */", "    uint32_t status;"), "hws_event.status"
        )

    def test_a_field_that_goes_or_moves(self) -> None:
        pair = "    uint64_t tag;\n    uint64_t user;\n    const void *detail;"
        self.caught(
            change(HEADER, pair, "    uint64_t user;\n    uint64_t tag;\n    const void *detail;"), "hws_event.tag"
        )
        self.caught(change(HEADER, pair, "    uint64_t tag;\n    const void *detail;"), "hws_event.user")

    def test_a_structure_without_a_size_that_grows(self) -> None:
        grown = change(
            HEADER,
            "    uint64_t length; /* bytes */\n} hws_iov;",
            "    uint64_t length;\n    uint64_t more;\n} hws_iov;",
        )
        self.caught(grown, "hws_iov")

    def test_a_sized_structure_may_grow(self) -> None:
        tail = "    uint64_t tag;\n} hws_message_info;"
        self.assertEqual(breaks(NOW, read(change(HEADER, tail, tail.replace(";\n}", ";\n    uint64_t more;\n}")))), [])

    def test_a_function_that_goes(self) -> None:
        start = HEADER.index("/**\n * Wake every thread that sleeps")
        end = HEADER.index(";", HEADER.index("hws_worker_signal(", start)) + 1
        self.caught(HEADER[:start] + HEADER[end:], "hws_worker_signal")

    def test_a_function_that_changes(self) -> None:
        self.caught(
            change(HEADER, "int32_t hws_kind(hws_id id)", "int32_t hws_kind(hws_id id, uint32_t x)"), "hws_kind"
        )
        self.caught(change(HEADER, "uint32_t hws_version(void)", "uint64_t hws_version(void)"), "hws_version")
        self.caught(
            change(HEADER, "(hws_id worker, uint64_t timeout_ns);", "(hws_id worker, uint32_t timeout_ns);"),
            "hws_worker_wait",
        )

    def test_a_promise_that_shrinks(self) -> None:
        old = "@thread any  @blocks no  @owns nothing  @since 0.1  @ucx ucp_worker_signal"
        self.caught(change(HEADER, old, old.replace("@thread any", "@thread outside")), "hws_worker_signal")
        self.caught(change(HEADER, old, old.replace("@blocks no", "@blocks for long")), "hws_worker_signal")

    def test_a_callback_that_changes(self) -> None:
        self.caught(change(HEADER, "(*hws_task_fn)(void *arg)", "(*hws_task_fn)(void *arg, uint32_t x)"), "hws_task_fn")

    def test_a_damaged_description(self) -> None:
        text = (ROOT / "abi" / "abi.json").read_text(encoding="utf-8")
        for old, new in (('"abi_version": 1', '"abi_version": "1"'), ('"direction": "in"', '"direction": "sideways"')):
            with self.assertRaises(Refused):
                validate(text.replace(old, new, 1), "abi.json")
        with self.assertRaises(Refused):
            validate(text[: len(text) // 2], "abi.json")


if __name__ == "__main__":
    unittest.main()
