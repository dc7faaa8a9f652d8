"""The workers of Hawser that carry Dask's connections: one for each event loop and address family."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import hawser
from hawser import _defaults

from . import _direct
from ._config import (
    close_timeout,
    context_options,
    prepare_cuda,
    prepare_rmm,
    progress_mode,
    refuse_unusable,
    refuse_wrong_values,
)
from ._usable import missing_transports, reason

_lock = threading.Lock()
_workers: dict[tuple[asyncio.AbstractEventLoop, bool], hawser.Worker] = {}
_contexts: dict[bool, hawser.Context] = {}
_settings: dict[bool, dict[str, str]] = {}


def loop_worker(host: str | None) -> hawser.Worker:
    """The worker of the running loop for a local or remote address, opened at its first use.

    A UCX context serves one family of addresses, so IPv6 has contexts and workers of its own.
    """
    ipv6 = host is not None and ":" in host
    key = asyncio.get_running_loop(), ipv6
    worker = _workers.get(key)
    if worker is None or worker.closed:
        with _lock:
            _sweep()
            # A task may keep the loop from running for long: peers are answered all the same, as by the kernel for tcp.
            worker = hawser.Worker(_open_context(ipv6), progress=progress_mode(), standby=True, name="dask", am_ids=())
            _direct.handle(worker)
            _workers[key] = worker
    return worker


def _open_context(ipv6: bool) -> hawser.Context:
    context = _contexts.get(ipv6)
    if context is None or context.closed:
        refuse_wrong_values()
        options = context_options(ipv6)
        prepare_cuda(options["config"])
        try:
            context = hawser.Context(**options)
        except hawser.HawserError as e:
            # Not an OSError: Dask would try again and again.
            why = [str(e)] + [reason(name) for name in missing_transports(options["config"].get("TLS", ""), set())]
            raise RuntimeError(f"UCX cannot be used with the settings {options['config']}: {'; '.join(why)}") from e
        try:
            refuse_unusable(options["config"], context.info())
            prepare_rmm()
        except RuntimeError:
            context.close()
            raise
        _contexts[ipv6], _settings[ipv6] = context, options["config"]
    return context


def running() -> tuple[hawser.Context, dict[str, str]] | None:
    """The context that carries Dask's connections in this process and UCX's settings for it, if there is one."""
    with _lock:
        for ipv6, context in _contexts.items():
            if not context.closed:
                return context, _settings[ipv6]
    return None


def started() -> bool:
    """Whether UCX runs for Dask in this process."""
    return running() is not None


def start() -> None:
    """Have UCX run for Dask before the first connection. Raises as loop_worker() where the settings cannot be used."""
    with _lock:
        _open_context(ipv6=False)


def _sweep() -> None:
    """Workers of closed loops are closed beside everything else: nobody progresses them there."""
    for key in [key for key in _workers if key[0].is_closed()]:
        _defaults.beside(_close, _workers.pop(key), 5.0)


def _close(worker: hawser.Worker, seconds: float) -> None:
    """What was written has the time that closing a comm gives it; peers that do not answer have `seconds`."""
    _direct.settle(worker, close_timeout())
    worker.close_wait(seconds)


def _close_all() -> None:
    with _lock:
        for worker in _workers.values():
            _close(worker, 1.0)
        _workers.clear()
        for context in _contexts.values():
            with contextlib.suppress(hawser.TimedOutError):  # it goes on closing
                context.close(1.0)
        _contexts.clear()
        _settings.clear()


_defaults.at_exit.append(_close_all)
