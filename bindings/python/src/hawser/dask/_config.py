"""Dask's settings for UCX, and what they mean for Hawser."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping
from importlib import resources
from typing import Any

import dask
import yaml
from dask.utils import parse_bytes

from ._nearest import nearest_devices
from ._setting import byte_count, flag, mapping, seconds, setting, tcp_timeout
from ._usable import check, create_cuda_context, no_cuda, no_infiniband

log = logging.getLogger("hawser.dask")


def load_defaults() -> None:
    """Make the defaults of dask.yaml known to Dask; settings that exist are kept."""
    text = resources.files(__package__).joinpath("dask.yaml").read_text()
    dask.config.update_defaults(yaml.safe_load(text))


def connect_timeout() -> float | None:
    """Seconds that one try to connect may take; None: as long as Dask lets it."""
    return seconds("connect-timeout")


def close_timeout() -> float:
    """Seconds that closing may take for what was sent; by default as long as the kernel would go on over tcp."""
    chosen = seconds("close-timeout")
    return tcp_timeout() if chosen is None else chosen


def write_ahead() -> int:
    """Bytes of a connection's messages for which writing does not wait at most."""
    return byte_count("write-ahead") or 0


def pool_size() -> int | None:
    """Bytes of received memory that are kept for reuse at most; None: Hawser's choice."""
    return byte_count("pool-size")


def direct_reads() -> bool:
    """Whether a peer on this machine may read large buffers where they are, as UCX's transport cma would."""
    tls = os.environ.get("UCX_TLS") or ",".join(_transports()) or _environment().get("TLS", "")
    names = set(tls.removeprefix("^").split(","))
    return flag("direct-reads") is not False and (
        "cma" not in names if tls.startswith("^") else not tls or bool(names & {"all", "sm", "shm", "cma"})
    )


def progress_mode() -> str:
    """How the worker of a loop makes progress, see hawser.Worker."""
    return setting("progress") or "blocking"


def refuse_wrong_values() -> None:
    """Raises ValueError for a setting that is read later, so that it is told of at the start."""
    for read in (connect_timeout, close_timeout, tcp_timeout, write_ahead, pool_size, direct_reads):
        read()
    flag("learn-bandwidths")


def refuse_encryption(address: str, connection_args: Mapping[str, Any]) -> None:
    """Raises RuntimeError where encryption is required: UCX has none."""
    if connection_args.get("require_encryption"):
        raise RuntimeError(f"encryption is required, but {address} is not encrypted: use tls://")


def _transports() -> list[str]:
    """UCX's names of the transports that the settings allow; empty: UCX's choice."""
    infiniband, nvlink = flag("infiniband"), flag("nvlink")
    if not (flag("tcp") or infiniband or nvlink):
        return []
    names = ["rc"] if infiniband else []
    # Unlike distributed-ucxx, an explicit choice keeps shared memory for peers on this machine.
    names += ["tcp", "sm", "self"]
    if nvlink or flag("cuda-copy"):
        names.append("cuda_copy")
    if nvlink:
        names.append("cuda_ipc")
    return names


def _net_devices() -> str:
    devices = setting("net-devices")
    if devices != "auto":
        return devices or ""
    cpus = os.sched_getaffinity(0)
    devices = nearest_devices(visible=os.environ.get("CUDA_VISIBLE_DEVICES"), cpus=cpus)
    log.info("net-devices: auto chose %s", devices or "no device: UCX takes what it finds")
    return devices


def prepare_cuda(config: Mapping[str, str]) -> None:
    """Make a CUDA context, which UCX looks for when it starts, where one is wanted. Raises RuntimeError with the reason
    where Dask's settings ask for it in vain; where only UCX_TLS names CUDA, that is said."""
    own = os.environ.get("UCX_TLS", "")
    if flag("create-cuda-context") or _names_cuda(config.get("TLS", "")):
        create_cuda_context()
    elif _names_cuda(own):
        try:
            create_cuda_context()
        except RuntimeError as e:
            log.warning("UCX_TLS=%s: %s", own, e)


def prepare_rmm() -> None:
    """Make RMM's pool, which comms receive into, if a size is set. Raises RuntimeError with the reason."""
    size = byte_count("rmm.pool-size")
    if size is None:
        size = dask.config.get("distributed.rmm.pool-size", None)
    if size is None:
        return
    if why := no_cuda() or ("the package rmm is not installed" if importlib.util.find_spec("rmm") is None else None):
        raise RuntimeError(f"rmm.pool-size cannot be had: {why}")
    import rmm

    rmm.reinitialize(pool_allocator=True, managed_memory=False, initial_pool_size=parse_bytes(size))


def _names_cuda(transports: str) -> bool:
    return "cuda" in transports and not transports.startswith("^")


def own_choice() -> dict[str, str]:
    """The transports and devices that the process's environment names for UCX."""
    return {key: os.environ[f"UCX_{key}"] for key in ("TLS", "NET_DEVICES") if f"UCX_{key}" in os.environ}


def refuse_unusable(config: Mapping[str, str], description: str) -> None:
    """Raises RuntimeError where Dask's settings ask for what UCX does not have, with the reason. What the process's
    environment asks for is UCX's own matter, so that is only said."""
    own = own_choice()
    if problems := check(own, description):
        log.warning("UCX's settings in the environment, %s: %s", own, "; ".join(problems))
    problems = check(config, description)
    if flag("rdmacm") and (why := no_infiniband()):
        problems.append(f"rdmacm cannot be used: {why}")
    if problems:
        raise RuntimeError(f"UCX cannot be used with the settings {dict(config)}: {'; '.join(problems)}")


def _environment() -> dict[str, str]:
    """Further settings of UCX, without UCX_."""
    chosen = mapping("environment").items()
    return {name.upper().replace("-", "_").removeprefix("UCX_"): str(value) for name, value in chosen}


def ucx_config(ipv6: bool = False) -> dict[str, str]:
    """UCX's settings: the process's environment wins, then the keys, then those of `environment`."""
    config: dict[str, str] = {}
    if ipv6:
        config["TCP_AF_PRIO"] = "inet6,inet"
    if transports := _transports():
        config["TLS"] = ",".join(transports)
        config["SOCKADDR_TLS_PRIORITY"] = "rdmacm" if flag("rdmacm") else "tcp"
    if devices := _net_devices():
        config["NET_DEVICES"] = devices
    for key, value in _environment().items():
        if key in config:
            log.warning("UCX_%s of distributed.comm.ucx.environment is ignored: other settings decide it", key)
        else:
            config[key] = value
    for key in [key for key in config if f"UCX_{key}" in os.environ]:
        log.info("UCX_%s of the environment is used instead of Dask's settings", key)
        del config[key]
    return config


def _keepalive(chosen: Mapping[str, str]) -> dict[str, str]:
    """UCX's settings by which a peer on another host may be silent as long as over tcp, unless there are some."""
    keys = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
    if any(key in chosen or f"UCX_{key}" in os.environ for key in keys):
        return {}
    seconds = max(2, int(tcp_timeout()))
    probes = min(10, seconds - 1)
    interval = max(1, seconds * 3 // 4 // probes)
    idle = seconds - probes * interval
    return dict(zip(keys, (f"{idle}s", f"{interval}s", str(probes)), strict=True))


def _read_key(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read().strip()
    except OSError as e:
        # Not an OSError: Dask would try again and again.
        raise RuntimeError(f"the key of distributed.comm.ucx.psk-file cannot be read: {e}") from e


def context_options(ipv6: bool = False) -> dict[str, Any]:
    """The arguments of hawser.Context."""
    config = ucx_config(ipv6)
    options: dict[str, Any] = {"features": ("am",), "config": {**_keepalive(config), **config}, "name": "dask"}
    if path := setting("psk-file"):
        options["psk"] = _read_key(path)
    return options
