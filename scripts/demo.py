#!/usr/bin/env python3
"""Copies a generated file between two processes over shared memory and over TCP, verifies it, and prints how fast that
was beside raw UCX; then the same Dask job over tcp:// and ucx://, where Dask and hawser are installed. The rest needs
only the standard library: scripts/demo.py --build build
"""

from __future__ import annotations

import argparse
import filecmp
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import NoReturn

MIB = 1 << 20
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def fail(text: str) -> NoReturn:
    sys.exit(f"demo: {text}")


def parse_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)(i?B)?", text.strip(), re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; say 1G, 256M, ...")
    return int(match[1]) * UNITS[match[2].upper()]


def choose_ucx() -> None:
    """C programs cannot know of a Python environment, so the wheel of this one is named to them."""
    if "HAWSER_UCX" in os.environ:
        return
    spec = importlib.util.find_spec("libucx")
    if spec and spec.submodule_search_locations:
        lib = os.path.join(next(iter(spec.submodule_search_locations)), "lib")
        if os.path.exists(os.path.join(lib, "libucp.so.0")):
            os.environ["HAWSER_UCX"] = lib


def memory_available() -> int:
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0


def choose_folder(size: int) -> str:
    """/dev/shm keeps the disk out of the figures, if there is memory to spare: two files, and something to live on."""
    need = 2 * size + 256 * MIB
    shm = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    if shm >= need and memory_available() >= need + 1024 * MIB:
        return "/dev/shm"
    for folder in (tempfile.gettempdir(), "/var/tmp"):
        if os.path.isdir(folder) and shutil.disk_usage(folder).free >= need:
            return folder
    fail(f"no folder with {need // MIB} MiB free; say --size 256M, or set TMPDIR")


def generate(path: str, size: int) -> None:
    """Random bytes, and no two MiB alike: a piece in the wrong place would show."""
    block = bytearray(os.urandom(MIB))
    with open(path, "wb") as f:
        for i in range(0, size, MIB):
            block[:8] = i.to_bytes(8, "little")
            f.write(block[: min(MIB, size - i)])


def pinned(cpus: list[int], which: int) -> Callable[[], None] | None:
    """Each process on its own core, where there are two."""
    if len(cpus) < 2:
        return None
    return lambda: os.sched_setaffinity(0, {cpus[which]})


def copy(program: str, source: str, target: str, over: str, cpus: list[int]) -> tuple[float, str]:
    """Copies by two processes; returns GB/s and the transports that carried it."""
    receiver = subprocess.Popen(
        [program, "receive", "0", target], stdout=subprocess.PIPE, text=True, preexec_fn=pinned(cpus, 0)
    )
    assert receiver.stdout is not None
    try:
        match = re.match(r"port (\d+)", receiver.stdout.readline())
        if not match:
            fail("the receiver did not start")
        sender = subprocess.run(
            [program, "send", "127.0.0.1", match[1], source] + (["tcp"] if over == "tcp" else []),
            stdout=subprocess.PIPE,
            text=True,
            timeout=600,
            check=False,
            preexec_fn=pinned(cpus, 1),
        )
        rest = receiver.communicate(timeout=60)[0]
    finally:
        if receiver.poll() is None:
            receiver.kill()
            receiver.wait()
    rate = re.search(r"([\d.]+) GB/s", sender.stdout)
    lanes = re.search(r"over (.*)", sender.stdout)
    if sender.returncode or receiver.returncode or not rate or "verified" not in rest:
        fail(f"the copy over {over} failed\n{sender.stdout}{rest}")
    if not filecmp.cmp(source, target, shallow=False):
        fail(f"the copy over {over} differs from its source, and the checksum did not show it")
    return float(rate[1]), lanes[1] if lanes else "?"


def raw(hawser: str, size: int, over: str) -> tuple[float | None, float | None]:
    """GB/s of hawser perf and of ucx_perftest with messages of 1 MiB, in turns; None where that cannot be had."""
    count = max(100, min(2000, size // MIB))
    command = [hawser, "perf", "-t", "tag_bw", "-s", str(MIB), "-n", str(count), "-w", "100", "--json", "--compare=3"]
    run = subprocess.run(
        command + (["--tcp"] if over == "tcp" else []), capture_output=True, text=True, timeout=600, check=False
    )
    if run.returncode:
        print(f"demo: no figure of raw UCX over {over}: {run.stderr.strip()}", file=sys.stderr)
        return None, None
    rounds = json.loads(run.stdout)["rounds"]
    mine, yardstick = (
        sorted(r[side]["bandwidth_overall"] for r in rounds)[len(rounds) // 2] * MIB / 1e9 for side in ("hawser", "raw")
    )
    return mine, yardstick


def program(build: str, *parts: str) -> str:
    path = os.path.join(build, *parts)
    if not os.access(path, os.X_OK):
        fail(f"{path} is not there; build first (cmake --preset release && cmake --build --preset release)")
    return path


def cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def dask(build: str) -> None:
    """A sum over a large array and its transpose, and an array fetched by one worker from another."""
    if missing := [name for name in ("distributed", "hawser") if importlib.util.find_spec(name) is None]:
        print(f"\nNo Dask job: {' and '.join(missing)} not installed in {sys.prefix}")
        return
    print("\nA Dask job on two workers: (x + x.T).sum() of 6000 x 6000, and 128 MiB from one to the other ...")
    bench = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "bench", "dask", "run.py")
    plot = os.path.abspath(os.path.join(build, "demo-dask.html"))
    command = [sys.executable, bench, "transpose", "fetch", "--protocols", "tcp", "ucx", "--html", plot]
    command += ["--sides", "6000", "--sizes", "128", "--rounds", "5"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if run.returncode:
        fail(f"the Dask job failed\n{run.stderr}")
    rows = [["job", "over", "seconds", "GB/s", "times tcp", "seconds of transfers"]]
    for line in map(json.loads, run.stdout.splitlines()):
        transfers = cell(line.get("transfer_seconds"))
        figures = [f"{line['seconds']:.3f}", cell(line.get("GB_s")), cell(line["ratio_to_tcp"]), transfers]
        rows.append([line["case"], f"{line['protocol']}://", *figures])
    print()
    table(rows)
    print(f"\nMedians of 5 rounds in turns. Plot: {plot}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--build", default="build", help="folder of the build (build)")
    parser.add_argument("--size", type=parse_size, default=1 << 30, help="of the file: 1G, 256M, ... (1G)")
    args = parser.parse_args()
    filecopy, hawser = program(args.build, "examples", "filecopy"), program(args.build, "hawser")
    choose_ucx()
    info = json.loads(subprocess.run([hawser, "info", "--json"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    print(f"Hawser {info['hawser']} on UCX {info['ucx']['version']} in {info['ucx']['path']} ({info['ucx']['reason']})")
    cpus = sorted(os.sched_getaffinity(0))
    rows = []
    with tempfile.TemporaryDirectory(prefix="hawser-demo-", dir=choose_folder(args.size)) as folder:
        source, target = os.path.join(folder, "source"), os.path.join(folder, "target")
        print(f"Copying a file of {args.size / MIB:g} MiB between two processes, in {os.path.dirname(folder)} ...")
        generate(source, args.size)
        for over in ("shared memory", "tcp"):
            rate, lanes = copy(filecopy, source, target, over, cpus)
            os.unlink(target)
            rows.append([over, cell(rate), *map(cell, raw(hawser, args.size, over)), "yes", lanes])
    head = ["over", "file copy", "hawser perf", "raw UCX", "verified", "transports"]
    print()
    table([head, *rows])
    print(
        "\nGB/s. The file copy reads one mapped file and writes another; hawser perf and raw UCX (ucx_perftest -e\n"
        "of the same UCX) send 1 MiB from memory, 32 under way. Same cores for all, one run."
    )
    dask(args.build)


if __name__ == "__main__":
    main()
