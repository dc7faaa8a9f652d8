"""A cluster over a list of hosts that are reached by ssh."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Scheduler
from distributed.deploy.spec import ProcessInterface, SpecCluster

from ._cli import STARTED

log = logging.getLogger("hawser.dask")


class HostWorkers(ProcessInterface):
    """The workers of one host: `python -m hawser.dask worker` at the other end of ssh, which ends when its input does,
    so nothing stays there when this process is killed."""

    def __init__(self, scheduler: str, name: Any, command: Sequence[str], options: Sequence[str]) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self._command = [*command, shlex.join([*options, "--until-eof", "--name", str(name), scheduler])]
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the workers are there. Raises RuntimeError with what ssh or they said otherwise."""
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
        said: list[str] = []
        try:
            while (line := await self._line()) != STARTED:
                if line is None:
                    raise RuntimeError(f"{shlex.join(self._command)} ended: {' | '.join(said[-5:])}")
                said.append(line)
        except BaseException:
            await self._end()
            raise
        self._reader = asyncio.create_task(self._watch())
        await super().start()

    async def _line(self) -> str | None:
        """The next one, or a piece of one that is very long: who does not read on holds up those who write."""
        assert self._process is not None and self._process.stdout is not None
        stdout = self._process.stdout
        try:
            line = await stdout.readuntil()
        except asyncio.IncompleteReadError as e:
            line = e.partial
        except asyncio.LimitOverrunError as e:
            line = await stdout.readexactly(e.consumed)
        return line.decode(errors="replace").rstrip() if line else None

    async def _watch(self) -> None:
        try:
            while (line := await self._line()) is not None:
                log.info("%s: %s", self._command[-2], line)
        finally:
            self._event_finished.set()

    async def _end(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        if self._reader is None:
            self._reader = asyncio.create_task(self._watch())  # what is not read keeps it from ending
        try:
            await asyncio.wait_for(process.wait(), 20)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def close(self) -> None:
        """Ends the workers, and ssh if that does not help."""
        await self._end()
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
        await super().close()


class SSHCluster(SpecCluster):
    """A scheduler in this process and workers on hosts, each with CPUs, a device and a network device of its own.

    workers_per_host: how many on each. scheduler_host: the address that the hosts reach this process at; None: Dask's
    guess. python: the interpreter there. ssh: the program and its options. worker_options: further options of
    `hawser-dask-worker`, as {"nthreads": 2, "net_devices": "auto", "enable_infiniband": True}. Scaling up adds
    workers on the hosts in turns.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        workers_per_host: int = 1,
        scheduler_host: str | None = None,
        protocol: str = "ucx",
        python: str = sys.executable,
        ssh: Sequence[str] = ("ssh", "-o", "BatchMode=yes"),
        env: Mapping[str, str] | None = None,
        worker_options: Mapping[str, Any] | None = None,
        scheduler_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not hosts:
            raise ValueError("hosts is empty")
        self._hosts = list(hosts)
        self._ssh = list(ssh)
        self._each = workers_per_host
        given = {"protocol": protocol, "n_workers": workers_per_host, **(worker_options or {})}
        setting = [f"{key}={value}" for key, value in (env or {}).items()]
        self._program = [*(["env", *setting] if setting else []), python, "-m", "hawser.dask", "worker"]
        self._program += [text for name, value in given.items() for text in _option(name, value)]
        options = {"protocol": protocol, "host": scheduler_host, "port": 0, "dashboard": False}
        super().__init__(
            workers={i: self._spec(i) for i in range(len(hosts))},
            scheduler={"cls": Scheduler, "options": {**options, **(scheduler_options or {})}},
            **kwargs,
        )

    def _spec(self, number: int) -> dict[str, Any]:
        host = self._hosts[number % len(self._hosts)]
        spec: dict[str, Any] = {
            "cls": HostWorkers,
            "options": {"command": [*self._ssh, host], "options": self._program},
        }
        if self._each > 1:
            spec["group"] = [f"-{i}" for i in range(self._each)]
        return spec

    def new_worker_spec(self) -> dict[Any, dict[str, Any]]:
        number = next(i for i in range(len(self.worker_spec) + 1) if i not in self.worker_spec)
        return {number: self._spec(number)}


def _option(name: str, value: Any) -> list[str]:
    """An option as hawser-dask-worker has it."""
    dashed = name.replace("_", "-")
    if value is None:
        return []
    if isinstance(value, bool):
        if dashed.startswith("enable-"):
            return [f"--{dashed}" if value else f"--disable-{dashed.removeprefix('enable-')}"]
        return [f"--{dashed}" if value else f"--no-{dashed}"]
    return [f"--{dashed}", str(value)]
