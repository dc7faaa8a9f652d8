"""Which CPUs and GPUs each worker of a machine gets."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_SYS = Path("/sys")


def parse_cpus(text: str) -> list[int]:
    """The kernel's lists, as "0-3,8"."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus += range(int(first), int(last or first) + 1)
    return cpus


def numa_nodes(sys: Path = _SYS, allowed: Iterable[int] | None = None) -> list[list[int]]:
    """The allowed CPUs (default: this process's) by NUMA node; nodes without any are left out."""
    mine = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    folders = (sys / "devices/system/node").glob("node[0-9]*")
    nodes = []
    for folder in sorted(folders, key=lambda path: int(path.name.removeprefix("node"))):
        cpus = set(parse_cpus((folder / "cpulist").read_text()))
        nodes.append([cpu for cpu in mine if cpu in cpus])
    return [node for node in nodes if node] or [mine]


def cpu_groups(n: int | None = None, sys: Path = _SYS, allowed: Iterable[int] | None = None) -> list[list[int]]:
    """The CPUs of each of n workers; without n one worker for each NUMA node.

    A group never crosses nodes as long as there are as many workers as nodes. Workers beyond the number of CPUs share.
    """
    nodes = numa_nodes(sys, allowed)
    if n is None:
        return nodes
    if n < len(nodes):
        return [[cpu for node in nodes[i::n] for cpu in node] for i in range(n)]
    groups = []
    for i, node in enumerate(nodes):
        share = n // len(nodes) + (i < n % len(nodes))
        for j in range(share):
            if share > len(node):
                groups.append([node[j % len(node)]])
            else:
                groups.append(node[j * len(node) // share : (j + 1) * len(node) // share])
    return groups


def visible_devices(value: str | int | Iterable[int | str] | None, count: int) -> list[str]:
    """CUDA_VISIBLE_DEVICES as a list of indices, "GPU-..." or "MIG-..."; None: all of `count` devices.

    Raises ValueError where a device is named twice or is none of these.
    """
    if value is None:
        return [str(i) for i in range(count)]
    names = value.split(",") if isinstance(value, str) else [value] if isinstance(value, int) else list(value)
    devices = [str(name).strip() for name in names if str(name).strip()]
    for device in devices:
        if not device.isdigit() and not device.startswith(("GPU-", "MIG-")):
            raise ValueError(f"{device!r} is no device: an index, GPU-UUID or MIG-UUID")
    if len(set(devices)) < len(devices):
        raise ValueError(f"a device is named twice in {','.join(devices)}")
    return devices


def rotated(devices: list[str], i: int) -> str:
    """CUDA_VISIBLE_DEVICES of worker i: its own device first, so that it is device 0 there."""
    i %= len(devices)
    return ",".join(devices[i:] + devices[:i])
