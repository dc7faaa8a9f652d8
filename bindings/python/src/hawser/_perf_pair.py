"""Two processes on this machine that exchange messages by one of _perf_peers, and how long that takes."""

from __future__ import annotations

import ast
import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from ._perf_peers import PEERS, mpiexec

_FIRST_ROUNDS = 4
_START_SECONDS = 60.0
_END_SECONDS = 10.0


class _End:
    """One end's side of the pipe to the program that measures (hawser._perf_peers.Link)."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def tell_port(self, port: int) -> None:
        self._pipe.send(port)

    def port(self) -> int:
        return int(self._pipe.recv())

    def rounds(self) -> tuple[int, int] | None:
        task: tuple[int, int] | None = self._pipe.recv()
        self._start = time.perf_counter()
        return task

    def done(self) -> None:
        self._pipe.send(time.perf_counter() - self._start)


def _run_end(name: str, pipe: Any, first: bool, cpu: int | None) -> None:
    if cpu is not None:
        os.sched_setaffinity(0, [cpu])
    try:
        PEERS[name].end(_End(pipe), first)
    except EOFError:  # the program that measures is gone
        sys.exit(1)
    except Exception as e:
        sys.exit(f"{name}: {type(e).__name__}: {e}")


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C is for the program that measures: processes that it starts here inherit that it is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Pair:
    """Two processes that exchange messages by one peer; each, the listening one first, on a CPU if given."""

    def __init__(self, name: str, cpus: tuple[int | None, int | None] = (None, None)) -> None:
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        if PEERS[name].by_mpiexec:
            self._start_by_mpiexec(name, cpus)
        else:
            self._spawn(name, cpus)
        self._pipes[1].send(self._pipes[0].recv())

    def _spawn(self, name: str, cpus: tuple[int | None, int | None]) -> None:
        mp = multiprocessing.get_context("spawn")
        for first in (False, True):
            here, there = mp.Pipe()
            process = mp.Process(target=_run_end, args=(name, there, first, cpus[first]), daemon=True)
            with _without_interrupts():
                process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)

    def _start_by_mpiexec(self, name: str, cpus: tuple[int | None, int | None]) -> None:
        # Open MPI wants to be told that it may run as root, and that there may be fewer cores than processes.
        allowed = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        }
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
            path = os.path.join(folder, "end")
            server.bind(path)
            server.listen()
            server.settimeout(_START_SECONDS)
            command = [str(mpiexec()), "-n", "2", sys.executable, "-m", __name__, name, path, repr(cpus)]
            with _without_interrupts():
                self._processes.append(_Program(subprocess.Popen(command, env={**os.environ, **allowed})))
            ends: dict[int, Any] = {}
            try:
                while len(ends) < 2:
                    pipe = Connection(server.accept()[0].detach())
                    ends[pipe.recv()] = pipe
            except OSError as e:
                self.close()
                raise OSError(f"mpiexec started no pair: {e}") from e
        self._pipes += [ends[rank] for rank in sorted(ends)]

    def seconds(self, size: int, rounds: int) -> float:
        """How long so many round trips take the connecting end."""
        for pipe in self._pipes:
            pipe.send((size, rounds))
        took = [pipe.recv() for pipe in self._pipes]
        return float(took[1])

    def half_round_trip(self, size: int, seconds: float) -> float:
        """The time of a message one way, over about so many seconds."""
        rounds = _FIRST_ROUNDS
        while (took := self.seconds(size, rounds)) < seconds / 10:
            rounds *= 4
        count = max(1, round(rounds * seconds / took))
        return self.seconds(size, count) / count / 2

    def kill(self) -> None:
        """End both at once; close() is still due."""
        for process in self._processes:
            process.kill()

    def close(self) -> None:
        for pipe in self._pipes:
            with contextlib.suppress(OSError):
                pipe.send(None)
        for process in self._processes:
            process.join(_END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()


class _Program:
    """A program as a process of multiprocessing."""

    def __init__(self, program: subprocess.Popen[bytes]) -> None:
        self._program = program
        self.kill = program.kill

    def join(self, seconds: float | None = None) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(seconds)

    def is_alive(self) -> bool:
        return self._program.poll() is None


def _rank(name: str, path: str, cpus: str) -> None:
    """One end, started by mpiexec."""
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        pipe = Connection(s.detach())
    pipe.send(rank)
    _run_end(name, pipe, rank == 1, ast.literal_eval(cpus)[rank])


if __name__ == "__main__":
    _rank(*sys.argv[1:])
