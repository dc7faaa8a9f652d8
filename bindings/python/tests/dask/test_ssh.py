# TIMEOUT: 400
"""SSHCluster over a real sshd, from one network namespace to another."""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from namespaces import inside, ip, link, made, up

from hawser.dask import _ssh

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
HERE, THERE = "10.211.77.1", "10.211.77.2"


def test_options_as_the_program_has_them():
    options = {"nthreads": 2, "enable_nvlink": False, "enable_rdmacm": True, "dashboard": False, "interface": None}
    got = [text for name, value in options.items() for text in _ssh._option(name, value)]
    assert got == ["--nthreads", "2", "--disable-nvlink", "--enable-rdmacm", "--no-dashboard"]


def test_hosts_are_needed():
    with pytest.raises(ValueError, match="hosts"):
        _ssh.SSHCluster([])


async def test_a_host_that_says_much_without_a_line(caplog):
    """It is read on, and ends."""
    says = f"print({_ssh.STARTED!r}); print('x' * 300_000); print('last', end=''); import sys; sys.stdin.read()"
    workers = _ssh.HostWorkers("ucx://127.0.0.1:1", "name", [sys.executable, "-u", "-c", says], [])
    with caplog.at_level(logging.INFO, "hawser.dask"):
        await workers.start()
        await asyncio.wait_for(workers.close(), 15)
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert sum(text.count("x") for text in said) == 300_000 and said[-1] == "last"


@pytest.fixture
def namespaces():
    """Names of two network namespaces with a link between them."""
    with made("a", "b") as (a, b):
        link(a, "veth0", b, "veth0")
        for name, address in ((a, HERE), (b, THERE)):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
            up(name, "veth0")
        yield a, b


@pytest.fixture
def ssh(namespaces, tmp_path):
    """The command that reaches an sshd in the second namespace."""
    if SSHD is None or shutil.which("ssh-keygen") is None:
        pytest.skip("no sshd: apt-get install openssh-server openssh-client")
    for name in ("host", "user"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name]
        subprocess.run(command, check=True)
    Path("/run/sshd").mkdir(exist_ok=True)
    config = tmp_path / "sshd_config"
    config.write_text(
        f"ListenAddress {THERE}\nPort 2222\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/user.pub\n"
        "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
    )
    with open(tmp_path / "sshd.log", "w") as said:
        server = subprocess.Popen(inside(namespaces[1], SSHD, "-D", "-e", "-f", config), stderr=said)
    options = ["StrictHostKeyChecking=no", f"UserKnownHostsFile={tmp_path}/known", "BatchMode=yes", "LogLevel=ERROR"]
    command = ["ssh", "-p", "2222", "-i", str(tmp_path / "user"), *(f"-o{option}" for option in options)]
    try:
        deadline = time.monotonic() + 30
        login = inside(namespaces[0], *command, THERE, "true")
        while subprocess.run(login, capture_output=True, timeout=60).returncode:
            assert time.monotonic() < deadline and server.poll() is None, (tmp_path / "sshd.log").read_text()
            time.sleep(0.2)
        yield command
    finally:
        server.terminate()
        server.wait(30)


PROGRAM = """
import json, os, sys, time
from distributed import Client
from hawser.dask import SSHCluster

if __name__ == "__main__":
    ssh, here, there, stay = json.loads(sys.argv[1])
    # What the remote processes need to find the same library and packages.
    env = {k: v for k, v in os.environ.items() if k in ("HAWSER_UCX", "PYTHONPATH", "LD_PRELOAD")}
    options = {"nthreads": 1, "host": there, "dashboard": False}
    cluster = SSHCluster([there], workers_per_host=2, scheduler_host=here, ssh=ssh, env=env, worker_options=options)
    with cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        names = sorted(info["name"] for info in client.scheduler_info()["workers"].values())
        where = {address.split("://")[1].split(":")[0] for address in client.scheduler_info()["workers"]}
        total = client.submit(sum, client.map(lambda i: i * i, range(100)), pure=False).result(timeout=60)
        cluster.scale(4)
        client.wait_for_workers(4, timeout=90)
        print(json.dumps([names, sorted(where), total]), flush=True)
        if stay:
            time.sleep(600)
"""


def run(namespaces, ssh, tmp_path, stay):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    arguments = json.dumps([ssh, HERE, THERE, stay])
    command = inside(namespaces[0], sys.executable, file, arguments)
    with open(tmp_path / "log", "w") as said:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)


def workers(namespace):
    """Processes of Python in a namespace."""
    pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=True).stdout.split()
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if b"python" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


@pytest.mark.parametrize("killed", [False, True], ids=["closed", "killed"])
def test_workers_run_there_and_end_with_the_cluster(namespaces, ssh, tmp_path, killed):
    with run(namespaces, ssh, tmp_path, killed) as process:
        try:
            line = process.stdout.readline()
            assert line == '[["0-0", "0-1"], ["10.211.77.2"], 328350]\n', (tmp_path / "log").read_text()
            if killed:
                assert workers(namespaces[1])
                process.send_signal(signal.SIGKILL)
            else:
                assert process.wait(150) == 0
        finally:
            if process.poll() is None:
                process.kill()
    deadline = time.monotonic() + 120
    while left := workers(namespaces[1]):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
