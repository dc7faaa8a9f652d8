#!/usr/bin/env python3
"""Sums up ctest's JUnit reports: counts, failures, and every skipped test with its reason.

A whole test skips by printing `SKIP: reason` and exiting 77. A part of one shows as such a line in a test that passed,
as Criterion's `[SKIP] suite::name: reason`, or as unittest's `... skipped 'reason'`.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
PATTERNS = (
    re.compile(r"^()SKIP: (.+)$"),
    re.compile(r"^\[SKIP\] (\S+?::\S+?): (.+)$"),
    re.compile(r"^(\S+ \(.+\)) \.\.\. skipped ['\"](.+)['\"]$"),
    re.compile(r"^SKIPPED \[\d+\] (\S+?): (.+)$"),
)
# pytest's closing line.
CLOSING = re.compile(r"^=* ?(\d+ (?:passed|failed|skipped|error).* in [\d.]+s.*?) ?=*$")


def reasons(output: str) -> Iterator[tuple[str, str]]:
    for line in ESCAPE.sub("", output).splitlines():
        for pattern in PATTERNS:
            if match := pattern.match(line.strip()):
                yield match[1], match[2]


def main(paths: list[str]) -> int:
    total = {"passed": 0, "failed": 0, "skipped": 0}
    skipped: list[tuple[str, str]] = []
    failures: list[str] = []
    closings: list[tuple[str, str]] = []
    for path in map(Path, paths):
        count = dict.fromkeys(total, 0)
        for case in ET.parse(path).getroot().iter("testcase"):
            name = f"{path.stem}: {case.get('name')}"
            output = case.findtext("system-out") or ""
            closings += [(name, m[1]) for line in output.splitlines() if (m := CLOSING.match(line.strip()))]
            if case.find("failure") is not None or case.find("error") is not None:
                count["failed"] += 1
                failures.append(name)
            elif case.find("skipped") is not None:
                count["skipped"] += 1
                skipped.append((name, next((why for _, why in reasons(output)), "NO REASON GIVEN")))
            else:
                count["passed"] += 1
                skipped += [(f"{name}{' ' + part if part else ', in part'}", why) for part, why in reasons(output)]
        print(f"{path.stem:14} " + ", ".join(f"{count[key]:4} {key}" for key in count))
        for key in total:
            total[key] += count[key]

    if closings:
        print("\npytest:")
        for name, closing in closings:
            print(f"  {name}: {closing}")
    if skipped:
        print("\nskipped:")
        for name, why in skipped:
            print(f"  {name}: {why}")
    if failures:
        print("\nfailed:")
        for name in failures:
            print(f"  {name}")
    print(f"\ntotal: {total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped")
    # Reports that hold no test mean that nothing was run: that is no success.
    return 0 if total["passed"] + total["failed"] > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
