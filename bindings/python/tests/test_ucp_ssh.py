"""ucp.benchmarks.asyncssh, with hosts that are one SSH server of asyncssh."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from ucp_support import event_loop_policy  # noqa: F401

HERE = importlib.util.find_spec("asyncssh") is not None
needs_asyncssh = pytest.mark.skipif(not HERE, reason="asyncssh is not installed")

SERVER = """
import asyncio, asyncssh

class Anybody(asyncssh.SSHServer):
    def begin_auth(self, user):
        return False

async def serve(process):
    pipe = asyncio.subprocess.PIPE
    run = await asyncio.create_subprocess_shell("exec " + process.command, stdout=pipe, stderr=pipe)
    await process.redirect(stdout=run.stdout, stderr=run.stderr)
    gone = asyncio.ensure_future(process.wait_closed())
    await asyncio.wait([gone, asyncio.ensure_future(run.wait())], return_when=asyncio.FIRST_COMPLETED)
    if run.returncode is None:
        run.kill()
    else:
        await process.stdout.drain()
        process.exit(abs(run.returncode))

async def main():
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen("127.0.0.1", 0, server_factory=Anybody, server_host_keys=[key],
                                   process_factory=serve)
    print(server.get_port(), flush=True)
    await server.wait_closed()

asyncio.run(main())
"""

PROGRAM = """
import shlex, sys
from ucp.benchmarks.asyncssh import run_ssh_cluster

def command(text, *arguments):
    return shlex.join([sys.executable, "-c", text, *map(str, arguments)])

def get_server_command(args, num_workers):
    return command(args[0], num_workers)

def get_worker_command(server_info, args, num_workers, node_idx):
    return command(args[1], f"{server_info['address']}:{server_info['port']}", num_workers, node_idx)

run_ssh_cluster(sys.argv[1:3], "here", ["here", "there"], 2, get_server_command, get_worker_command)
"""

# A server that says where it is in three parts, with a warning before; it prints what its workers were called with.
LISTENS = """
import json, socket, sys, time
sys.stderr.write("a warning"); sys.stderr.flush()
s = socket.create_server(("127.0.0.1", 0))
where = json.dumps({"address": "127.0.0.1", "port": s.getsockname()[1]})
print(where[:9], end="", flush=True); time.sleep(0.2)
print(where[9:], end="", flush=True); time.sleep(0.2); print(flush=True)
said = sorted(s.accept()[0].makefile().read() for _ in range(int(sys.argv[1])))
print("the workers said", said)
"""

TELLS = """
import socket, sys
host, port = sys.argv[1].split(":")
socket.create_connection((host, int(port))).sendall(" ".join(sys.argv[2:]).encode())
"""


@pytest.fixture
def run(tmp_path):
    """Runs the program with a server's and a worker's text."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as ssh:
        try:
            (tmp_path / ".ssh").mkdir()
            hosts = f"Host here there\n HostName 127.0.0.1\n Port {ssh.stdout.readline().strip()}\n User somebody\n"
            (tmp_path / ".ssh/config").write_text(hosts)
            command = [sys.executable, "-c", PROGRAM]
            env = {**os.environ, "HOME": str(tmp_path)}
            yield lambda *texts: subprocess.run([*command, *texts], capture_output=True, text=True, timeout=50, env=env)
        finally:
            ssh.kill()


@needs_asyncssh
def test_a_cluster(run):
    done = run(LISTENS, TELLS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the workers said ['2 0', '2 1']\n"
    assert done.stderr == "a warning"


@needs_asyncssh
def test_a_worker_that_prints(run):
    done = run(LISTENS, TELLS + "print('hello')")
    assert done.returncode == 0 and "The worker on there printed something" in done.stderr


@needs_asyncssh
@pytest.mark.parametrize(
    "server, worker, said",
    [
        ("raise SystemExit('no')", TELLS, "no\nSSH connection failed: the server ended before it listened"),
        (LISTENS, "raise SystemExit('no')", "The workers failed on here, there"),
    ],
)
def test_a_side_that_fails(run, server, worker, said):
    done = run(server, worker)
    assert done.returncode != 0 and said in done.stderr


@needs_asyncssh
def test_a_host_that_is_not_there(run, tmp_path):
    (tmp_path / ".ssh/config").write_text("Host *\n HostName 127.0.0.1\n Port 1\n")
    done = run(LISTENS, TELLS)
    assert done.returncode != 0 and "SSH connection failed: " in done.stderr and "Traceback" not in done.stderr


@needs_asyncssh
def test_a_session():
    import queue

    from ucp.benchmarks.asyncssh import SSHProc, SSHServerProc

    said = queue.Queue()
    server = SSHServerProc(said)
    where = {"address": "1.2.3.4", "port": 5}
    server.data_received(json.dumps(where), None)
    server.data_received("a report", None)
    assert (said.get(), said.get(), server.address, server.port) == (where, "a report", "1.2.3.4", 5)
    assert isinstance(server, SSHProc) and server.connection_lost(None) is None


@pytest.mark.skipif(HERE, reason="asyncssh is installed")
def test_without_asyncssh():
    from ucp.benchmarks import asyncssh

    assert asyncssh.SSHProc is asyncssh.SSHServerProc is asyncssh.SSHServerProce is asyncssh.run_ssh_cluster is None
    assert asyncssh.logger.name == "ucx.asyncssh"


def test_the_level_of_the_log():
    program = "from ucp.benchmarks.asyncssh import logger; print(logger.level)"
    for env, level in (({}, 30), ({"UCXPY_ASYNCSSH_LOG_LEVEL": "DEBUG"}, 10)):
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **env}
        )
        assert done.stdout == f"{level}\n", done.stderr
