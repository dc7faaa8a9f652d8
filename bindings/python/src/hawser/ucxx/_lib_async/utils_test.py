"""Helpers for tests of UCXX's asyncio API."""

from __future__ import annotations

import array
import io
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .._lib.arr import Array
from .._lib.requests import empty

normal_env = {
    "UCX_RNDV_SCHEME": "put_zcopy",
    "UCX_MEMTYPE_CACHE": "n",
    "UCX_TLS": "rc,cuda_copy,cuda_ipc",
    "CUDA_VISIBLE_DEVICES": "0",
}


def set_env() -> None:
    """Have what is started from now on use normal_env."""
    os.environ.update(normal_env)


# ---- GPUs ----


def get_num_gpus() -> int:
    """How many GPUs of NVIDIA this machine, or container, has."""
    return sum(1 for _ in Path("/dev").glob("nvidia[0-9]*"))


def get_cuda_devices() -> list[Any]:
    """The GPUs that CUDA may use: the names in CUDA_VISIBLE_DEVICES where that is set, else their numbers."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return list(range(get_num_gpus())) if names is None else names.split(",")


def cuda_array(size: int) -> Any:
    """So many bytes of device memory, of RMM or else of numba."""
    try:
        import rmm
    except ImportError:
        import numba.cuda

        return numba.cuda.device_array((size,), dtype="u1")
    return rmm.DeviceBuffer(size=size)


# ---- Frames of Dask ----


def _memory(is_cuda: int, size: int) -> Any:
    if is_cuda:
        return cuda_array(size)
    return empty(size) if size else b""


async def _loaded(frames: list[Any]) -> tuple[list[Any], Any]:
    from distributed.comm import utils

    load: Any = utils.from_frames
    return frames, await load(frames)


async def send(ep: Any, frames: Sequence[Any]) -> None:
    """Send frames by tagged messages, the first of which tell of their memory and sizes."""
    arrays = [Array(frame) for frame in frames]
    await ep.send_obj(array.array("Q", [n for a in arrays for n in (a.cuda, a.nbytes)]))
    for each in arrays:
        if each.nbytes:
            await ep.send(each)


async def recv(ep: Any) -> tuple[list[Any], Any]:
    """The frames that send() sent, and the object that they are of. Needs distributed."""
    told = array.array("Q", bytes(await ep.recv_obj()))
    frames = [_memory(*each) for each in zip(told[::2], told[1::2], strict=True)]
    for frame, size in zip(frames, told[1::2], strict=True):
        if size:
            await ep.recv(frame)
    return await _loaded(frames)


async def am_send(ep: Any, frames: Sequence[Any]) -> None:
    """Send frames by active messages, the first of which tells their number."""
    await ep.am_send(array.array("Q", [len(frames)]))
    for frame in frames:
        await ep.am_send(frame)


async def am_recv(ep: Any) -> tuple[list[Any], Any]:
    """The frames that am_send() sent, and the object that they are of. Needs distributed."""
    (count,) = array.array("Q", bytes(await ep.am_recv()))
    return await _loaded([await ep.am_recv() for _ in range(count)])


# ---- Logs and times ----


@contextmanager
def captured_logger(
    logger: str | logging.Logger, level: int = logging.INFO, propagate: bool | None = None
) -> Iterator[io.StringIO]:
    """What a logger writes meanwhile."""
    if isinstance(logger, str):
        logger = logging.getLogger(logger)
    before = logger.level, logger.handlers[:], logger.propagate
    text = io.StringIO()
    logger.handlers[:] = [logging.StreamHandler(text)]
    logger.setLevel(level)
    if propagate is not None:
        logger.propagate = propagate
    try:
        yield text
    finally:
        level_before, logger.handlers[:], logger.propagate = before
        logger.setLevel(level_before)


def _timeout(config: Any) -> float:
    """Of the test that runs: UCXX's conftest keeps it in pytest's stash, older ones in its cache."""
    from .pytest_stash_keys import ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY

    kept: float | None = config.stash.get(ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY, None)
    if kept is None and (cache := getattr(config, "cache", None)) is not None:
        kept = (cache.get("asyncio_timeout", None) or {}).get("timeout")
    return 60.0 if kept is None else float(kept)


def compute_timeouts(pytestconfig: Any) -> tuple[float, float]:
    """Timeouts in seconds for asyncio and for processes, below that of the test."""
    timeout = _timeout(pytestconfig)
    return max(timeout * 0.8, timeout - 10), max(timeout * 0.9, timeout - 5)


async def wait_listener_client_handlers(listener: Any) -> None:
    """Wait until a listener serves no client any more."""
    await listener._wait_for_active_clients()
