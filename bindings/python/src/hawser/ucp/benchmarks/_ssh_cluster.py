"""One server and the workers of each host, as commands over SSH."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import queue
import sys
from argparse import Namespace
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec

import asyncssh

logger = logging.getLogger("ucx.asyncssh")
_POLL_SECONDS = 0.01
P = ParamSpec("P")

ServerCommand = Callable[[Namespace, int], str]  # of the arguments and the number of workers
WorkerCommand = Callable[[dict[str, Any], Namespace, int, int], str]  # of the server's address, these, and the node


class SSHProc(asyncssh.SSHClientSession[str]):
    """A command on a host; what it prints goes into the queue."""

    def __init__(self, out_queue: queue.Queue[Any]) -> None:
        assert isinstance(out_queue, queue.Queue)
        self.out_queue = out_queue

    def data_received(self, data: Any, datatype: Any) -> None:
        logger.debug("received %r", data)
        self.out_queue.put(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            logger.debug("the session ended")
        else:
            logger.error("the session ended: %s", exc)


class SSHServerProc(SSHProc):
    """The command of the server: the first that it prints is where it listens, as JSON, and goes as a dict into
    the queue."""

    address: str | None = None
    port: int | None = None

    def __init__(self, out_queue: queue.Queue[Any]) -> None:
        super().__init__(out_queue)
        self._first = ""
        self._first_line = True

    def _after_first_line(self, data: str) -> str:
        """Without what ends the line that says where it listens, which may come later than the rest."""
        if not self._first_line:
            return data
        line, newline, data = data.partition("\n")
        self._first_line = not newline
        return line.strip() + data

    def data_received(self, data: Any, datatype: Any) -> None:
        # What it prints on stderr, a warning say, may come before.
        if datatype is not None:
            super().data_received(data, datatype)
            return
        if self.address is not None:
            if rest := self._after_first_line(data):
                super().data_received(rest, datatype)
            return
        self._first += data
        try:
            server_info, end = json.JSONDecoder().raw_decode(self._first)
        except ValueError:
            return  # the rest is still to come
        self.address, self.port = server_info["address"], server_info["port"]
        self.out_queue.put(server_info)
        if rest := self._after_first_line(self._first[end:]):
            super().data_received(rest, datatype)


async def _started(conn: Any, session: type[SSHProc], command: str) -> tuple[Any, queue.Queue[Any]]:
    """Run a command; gives its channel and what it prints."""
    logger.debug("starting %s", command)
    output: queue.Queue[Any] = queue.Queue()
    channel, _ = await conn.create_session(functools.partial(session, output), command)
    return channel, output


async def _server_info(channel: Any, output: queue.Queue[Any]) -> dict[str, Any]:
    """Where the server listens, once it says so."""
    ended = asyncio.ensure_future(channel.wait_closed())
    try:
        while True:
            last = ended.done()
            while not output.empty():
                said = output.get()
                if isinstance(said, dict):
                    return said
                print(said, end="", file=sys.stderr)
            if last:
                raise OSError("the server ended before it listened")
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        ended.cancel()


def _warn_of_output(host: str, output: queue.Queue[Any]) -> None:
    if output.empty():
        return
    logger.warning(
        "The worker on %s printed something, most likely an error. UCXPY_ASYNCSSH_LOG_LEVEL=DEBUG shows it.", host
    )


def _blocking(run: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The same for who has no loop. It ends the program where a connection fails."""

    @functools.wraps(run)
    def blocking(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            asyncio.run(run(*args, **kwargs))
        except (OSError, asyncssh.Error) as e:
            sys.exit(f"SSH connection failed: {e}")

    return blocking


async def _run_ssh_cluster(
    args: Namespace,
    server_host: str,
    worker_hosts: Sequence[str],
    num_workers: int,
    get_server_command: ServerCommand,
    get_worker_command: WorkerCommand,
) -> None:
    """Run a server on one host and, once it listens, the workers of each of the others; wait for all.

    The commands are those that `get_server_command(args, num_workers)` and `get_worker_command(server_info, args,
    num_workers, node_idx)` give; `server_info` has the server's "address" and "port". The hosts' keys are not checked.
    """
    async with contextlib.AsyncExitStack() as connections:

        async def connected(host: str) -> Any:
            return await connections.enter_async_context(asyncssh.connect(host, known_hosts=None))

        server, said = await _started(
            await connected(server_host), SSHServerProc, get_server_command(args, num_workers)
        )
        server_info = await _server_info(server, said)
        logger.info("the server listens at %s", server_info)
        workers = []
        for node_idx, host in enumerate(worker_hosts):
            command = get_worker_command(server_info, args, num_workers, node_idx)
            workers.append(await _started(await connected(host), SSHProc, command))
        await asyncio.gather(*(channel.wait_closed() for channel, _ in workers))
        for host, (_, output) in zip(worker_hosts, workers, strict=True):
            _warn_of_output(host, output)
        failed = [host for host, (channel, _) in zip(worker_hosts, workers, strict=True) if channel.get_exit_status()]
        if failed:
            server.terminate()  # it would wait for them
        else:
            await server.wait_closed()
        while not said.empty():
            print(said.get(), end="")
        if failed:
            sys.exit(f"The workers failed on {', '.join(failed)}")


run_ssh_cluster = _blocking(_run_ssh_cluster)
