"""Whether UCX has the transports and devices that the settings ask for; if not, why."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from pathlib import Path

# UCX's names that stand for several transports, by how the transports' own names begin.
_ALIASES = {
    "ib": ("rc_", "ud_", "dc_"),
    "rc": ("rc_",),
    "rc_v": ("rc_verbs",),
    "rc_x": ("rc_mlx5",),
    "ud": ("ud_",),
    "ud_v": ("ud_verbs",),
    "ud_x": ("ud_mlx5",),
    "dc": ("dc_",),
    "dc_x": ("dc_mlx5",),
    "sm": ("posix", "sysv", "xpmem", "cma", "knem"),
    "shm": ("posix", "sysv", "xpmem", "cma", "knem"),
    "mm": ("posix", "sysv", "xpmem"),
    "cuda": ("cuda_", "gdr_copy"),
    "rocm": ("rocm_",),
    "ze": ("ze_",),
}
_RESOURCE = re.compile(r"^#\s+resource\s+\d+\s.*\s([a-z0-9_]+)/(\S+)\s*$", re.MULTILINE)
_SYS = Path("/sys")


def resources(description: str) -> set[tuple[str, str]]:
    """The pairs of transport and device in UCX's description of a context."""
    return set(_RESOURCE.findall(description))


def missing_transports(wanted: str, found: set[tuple[str, str]]) -> list[str]:
    """Those of a UCX_TLS that no resource has. A list of what is not wanted asks for nothing."""
    if wanted.startswith("^") or "all" in wanted.split(","):
        return []
    have = {transport for transport, _ in found}
    names = [name.split(":")[0].strip().lstrip("\\") for name in wanted.split(",")]
    return [name for name in names if name and not any(t.startswith(_ALIASES.get(name, (name,))) for t in have)]


def missing_devices(wanted: str, found: set[tuple[str, str]]) -> list[str]:
    """Those of a UCX_NET_DEVICES that no resource has."""
    if wanted.startswith("^") or "all" in wanted.split(","):
        return []
    have = {device for _, device in found}
    have |= {device.split(":")[0] for device in have}
    return [name for name in (name.strip() for name in wanted.split(",")) if name and name not in have]


def reason(transport: str) -> str:
    """Why a transport may be missing on this machine, as far as that can be seen."""
    if transport.startswith("cuda") or transport == "gdr_copy":
        return no_cuda() or "UCX was built without CUDA, or its plug-in libuct_cuda.so cannot be loaded"
    if transport.split("_")[0] in ("ib", "rc", "ud", "dc"):
        return no_infiniband() or "UCX was built without InfiniBand, or its plug-in libuct_ib.so cannot be loaded"
    return "UCX does not have it"


def no_infiniband(sys: Path = _SYS) -> str | None:
    """Why InfiniBand and RoCE cannot be used, or None if there is an active port."""
    try:
        devices = sorted(os.listdir(sys / "class/infiniband"))
    except OSError:
        devices = []
    if not devices:
        return "this machine has no InfiniBand or RoCE device (/sys/class/infiniband is empty)"
    states = {}
    for device in devices:
        for port in sorted((sys / "class/infiniband" / device / "ports").glob("*")):
            states[f"{device}:{port.name}"] = (port / "state").read_text().strip()
    if not any(state.endswith("ACTIVE") for state in states.values()):
        return f"no port of an InfiniBand or RoCE device is active: {states}"
    return None


def no_cuda() -> str | None:
    """Why CUDA cannot be used, or None if it has a device."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        return f"there is no CUDA driver: {e}"
    count = ctypes.c_int()
    error = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
    if error:
        return f"CUDA cannot be used: {cuda_error(cuda, error)}"
    if count.value == 0:
        return f"CUDA has no device (CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')})"
    return None


def cuda_device_count() -> int:
    """Devices that CUDA has, as far as CUDA_VISIBLE_DEVICES lets this process see them."""
    cuda = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    return count.value


def cuda_error(cuda: ctypes.CDLL, error: int) -> str:
    """CUDA's name of an error."""
    name = ctypes.c_char_p()
    if cuda.cuGetErrorName(error, ctypes.byref(name)) == 0 and name.value is not None:
        return name.value.decode()
    return f"error {error}"


def create_cuda_context() -> None:
    """Make the primary context of the first visible device current on this thread.

    UCX looks for it when it starts. Raises RuntimeError with the reason where that is impossible.
    """
    if why := no_cuda():
        raise RuntimeError(f"create-cuda-context: {why}")
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    error = (
        cuda.cuDeviceGet(ctypes.byref(device), 0)
        or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        or cuda.cuCtxSetCurrent(context)
    )
    if error:
        raise RuntimeError(f"create-cuda-context: {cuda_error(cuda, error)}")


def check(config: Mapping[str, str], description: str) -> list[str]:
    """What UCX_TLS and UCX_NET_DEVICES ask for and the context does not have: one text for each thing."""
    found = resources(description)
    problems = []
    for name in missing_transports(config.get("TLS", ""), found):
        problems.append(f"transport {name} cannot be used: {reason(name)}")
    for name in missing_devices(config.get("NET_DEVICES", ""), found):
        problems.append(f"device {name} cannot be used; this machine has {', '.join(_devices())}")
    return problems


def _devices(sys: Path = _SYS) -> list[str]:
    return sorted(path.name for kind in ("infiniband", "net") for path in (sys / "class" / kind).glob("*"))
