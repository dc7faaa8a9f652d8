"""The network device that is nearest to a GPU or to the CPUs of this process, by sysfs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_SYS, _PROC = Path("/sys"), Path("/proc")
_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # class of graphics adapters


def nearest_devices(sys: Path = _SYS, proc: Path = _PROC, visible: str | None = None, cpus: Iterable[int] = ()) -> str:
    """A value of UCX_NET_DEVICES: the InfiniBand or RoCE port with an active link that is nearest to the first
    visible GPU, or without one to the CPUs, with its network interface; as "mlx5_0:1,ib0".

    visible: CUDA_VISIBLE_DEVICES. GPUs are numbered by their place on the bus. Equally near ports are shared out by the
    number of the GPU. Empty where there is no such port, or no port is nearer than the others.
    """
    ports = _ports(sys)
    if not ports:
        return ""
    index, gpu = _gpu(sys, proc, visible)
    if gpu is not None:
        costs = {port: _distance(gpu, path) for port, path in ports.items()}
    else:
        index, node = 0, _node_of(sys, cpus)
        if node is None:
            return ""
        costs = {port: int(_read(path / "numa_node") != node) for port, path in ports.items()}
    best = [port for port in ports if costs[port] == min(costs.values())]
    if gpu is None and len(best) == len(ports) > 1:
        return ""
    port = best[index % len(best)]
    return ",".join([port, *_interfaces(ports[port])])


def absent_devices(names: str, sys: Path = _SYS) -> list[str]:
    """Those of a value of UCX_NET_DEVICES that this machine does not have."""
    found = {"all"}
    for kind in ("net", "infiniband"):
        with contextlib.suppress(OSError):
            found.update(os.listdir(sys / "class" / kind))
    chosen = names.removeprefix("^").split(",")
    return [name for name in chosen if name.strip().split(":")[0] not in found]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _ports(sys: Path) -> dict[str, Path]:
    """The active ports, with the place of their device on the bus."""
    found = {}
    for device in sorted((sys / "class/infiniband").glob("*")):
        for port in sorted((device / "ports").glob("*")):
            if _read(port / "state").endswith("ACTIVE"):
                found[f"{device.name}:{port.name}"] = (device / "device").resolve()
    return found


def _interfaces(device: Path) -> list[str]:
    """The network interface of a device that is up."""
    return [net.name for net in sorted((device / "net").glob("*")) if _read(net / "operstate") == "up"][:1]


def _gpu(sys: Path, proc: Path, visible: str | None) -> tuple[int, Path | None]:
    """The number of the first visible GPU and its place on the bus."""
    gpus = [
        path.resolve()
        for path in sorted((sys / "bus/pci/devices").glob("*"))
        if _read(path / "vendor") == _NVIDIA and _read(path / "class").startswith(_DISPLAY)
    ]
    first = (visible or "").split(",")[0].strip()
    if visible is not None and first in ("", "-1"):
        return 0, None
    if first.startswith(("GPU-", "MIG-")):
        for i, gpu in enumerate(gpus):
            if first in _read(proc / "driver/nvidia/gpus" / gpu.name / "information"):
                return i, gpu
        return 0, None
    index = int(first) if first.isdigit() else 0
    return (index, gpus[index]) if index < len(gpus) else (0, None)


def _distance(a: Path, b: Path) -> int:
    """Steps between two devices in the tree of buses."""
    common = len(os.path.commonpath([a, b]).split(os.sep))
    return len(a.parts) + len(b.parts) - 2 * common


def _node_of(sys: Path, cpus: Iterable[int]) -> str | None:
    """The NUMA node that all of the CPUs belong to."""
    nodes = set()
    for cpu in cpus:
        nodes |= {node.name.removeprefix("node") for node in (sys / f"devices/system/cpu/cpu{cpu}").glob("node[0-9]*")}
    return nodes.pop() if len(nodes) == 1 else None
