"""Starts helper_peer processes, also inside namespaces, and talks to them by lines."""

import contextlib
import ctypes
import functools
import itertools
import os
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import SkipTest

BUILD = os.environ.get("HAWSER_BUILD_DIR", "")
PEER = os.path.join(BUILD, "tests", "multiproc", "helper_peer")
SANITIZED = bool(os.environ.get("HAWSER_SANITIZE"))
PATIENCE = 60 if SANITIZED else 20

SHM, TCP = 1, 2
LOCAL, REMOTE, CAP, TCP_ONLY, RAW, SHM_FAILED = range(6)


def skip(reason):
    print(f"SKIP: {reason}", flush=True)
    sys.exit(77)


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Peer:
    """One helper_peer; `prefix` is the command that starts it (ip netns exec ..., unshare ...)."""

    def __init__(self, *args, prefix=(), env=None):
        self.name = " ".join(args)
        self.pending = b""
        self.lines = []
        self.process = subprocess.Popen(
            [*prefix, PEER, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            preexec_fn=die_with_parent,
        )

    @property
    def pid(self):
        return self.process.pid

    def say(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def line(self, timeout=PATIENCE):
        """The next line, or None after `timeout` seconds; fails at the end of the output."""
        end = time.monotonic() + timeout
        while b"\n" not in self.pending:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise AssertionError(f"{self.name} ended with {self.process.wait()}")
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        self.lines.append(line.decode())
        return self.lines[-1]

    def hear(self, *words, timeout=PATIENCE):
        """Reads up to a line that starts with one of `words`; gives its fields and the rest."""
        end = time.monotonic() + timeout
        while True:
            line = self.line(max(0.0, end - time.monotonic()))
            if line is None:
                raise AssertionError(f"{self.name}: none of {words} in {timeout} s, but {self.lines}")
            if line.split()[0] in words:
                return line

    def ask(self, command, word, timeout=PATIENCE):
        self.say(command)
        return self.hear(word, timeout=timeout)

    def echo(self, size, count=3):
        answer = self.ask(f"echo {size} {count}", "echoed")
        assert answer == f"echoed {count} OK", f"{self.name}: {answer}"

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)

    def end(self):
        """Leaves in good order; gives the exit code."""
        if self.process.poll() is None:
            self.process.stdin.close()
            while True:
                try:
                    if self.line() is None:
                        break
                except AssertionError:
                    break
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"{self.name} does not end; it said {self.lines[-5:]}") from None
        return self.process.returncode

    def destroy(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def fields(line):
    """name=value words of a line as a dictionary, numbers as numbers."""
    found = dict(word.split("=", 1) for word in line.split() if "=" in word)
    return {key: int(value) if value.isdigit() else value for key, value in found.items()}


def serve(*options, **how):
    peer = Peer("serve", *options, **how)
    peer.port = peer.hear("port").split()[1]
    return peer


def dial(host, port, *options, **how):
    """A connected client; `.info` is what it says about its connection."""
    peer = Peer("dial", host, str(port), *options, **how)
    line = peer.hear("connected", "connect")
    assert line.startswith("connected "), f"{peer.name}: {line}"
    peer.info = fields(line)
    return peer


def dial_later(host, port, *options, **how):
    """A client that is there, and dials when told to: `go(client)`."""
    return Peer("dial", host, str(port), "--later", *options, **how)


def refused(host, port, **how):
    """A client that cannot connect; the name of the reason."""
    peer = Peer("dial", host, str(port), **how)
    line = peer.hear("connected", "connect")
    peer.end()
    return line.split()[1].rstrip(":") if line.startswith("connect ") else None


def go(peer):
    peer.say("go")
    line = peer.hear("connected", "connect")
    assert line.startswith("connected "), f"{peer.name}: {line}"
    peer.info = fields(line)


def run(*command):
    """Runs a command; gives True if it succeeded."""
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).returncode == 0


@functools.cache
def private_names():
    """From here on `ip netns` names what only this process and its children know, and what goes with them, whatever
    their end: a test that is killed at its time limit tidies nothing up. False: not permitted here."""
    try:
        os.makedirs("/run/netns", exist_ok=True)
    except OSError:
        return False
    libc = ctypes.CDLL(None)
    return (
        libc.unshare(0x20000) == 0  # CLONE_NEWNS
        and libc.mount(b"none", b"/", None, ctypes.c_ulong(0x44000), None) == 0  # MS_REC | MS_PRIVATE
        and libc.mount(b"tmpfs", b"/run/netns", b"tmpfs", ctypes.c_ulong(0), None) == 0
    )


class Hosts:
    """Two network namespaces, joined by a virtual cable: 10.99.0.1 and 10.99.0.2. A program can have several."""

    numbers = itertools.count()

    def __init__(self):
        tag = f"hws{os.getpid() % 100000}n{next(self.numbers)}"
        self.names = [f"{tag}a", f"{tag}b"]
        self.links = [f"{tag}v0", f"{tag}v1"]
        self.addresses = ["10.99.0.1", "10.99.0.2"]
        if os.geteuid() != 0:
            skip("network namespaces need root")
        try:
            made = private_names() and all(run("ip", "netns", "add", name) for name in self.names)
        except FileNotFoundError:
            skip("no `ip` command (package iproute2)")
        if not made:
            self.close()
            skip("network namespaces are not permitted here")
        if not run(
            "ip",
            "link",
            "add",
            self.links[0],
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "name",
            self.links[1],
            "netns",
            self.names[1],
        ):
            self.close()
            skip("virtual ethernet devices are not permitted here")
        for i in range(2):
            inside = ["ip", "-n", self.names[i]]
            assert run(*inside, "link", "set", "lo", "up")
            assert run(*inside, "addr", "add", f"{self.addresses[i]}/24", "dev", self.links[i])
            assert run(*inside, "link", "set", self.links[i], "up")
        for i in range(2):
            self.wait_until_up(i)

    def wait_until_up(self, host, device=None):
        """The kernel tells of a new carrier a little later, and UCX looks for that when it starts."""
        end = time.monotonic() + PATIENCE
        command = ["ip", "-n", self.names[host], "link", "show", device or self.links[host]]
        while b"state UP" not in subprocess.run(command, capture_output=True).stdout:
            assert time.monotonic() < end, "the virtual cable does not come up"
            time.sleep(0.01)

    def bridge(self, host):
        """Give its address to a bridge, and make the cable a port of that."""
        ip = ["ip", "-n", self.names[host]]
        if not run(*ip, "link", "add", "br0", "type", "bridge"):
            skip("bridges are not permitted here")
        assert run(*ip, "addr", "flush", "dev", self.links[host])
        assert run(*ip, "link", "set", self.links[host], "master", "br0")
        assert run(*ip, "addr", "add", f"{self.addresses[host]}/24", "dev", "br0")
        assert run(*ip, "link", "set", "br0", "up")
        self.wait_until_up(host, "br0")

    def unbridge(self, host):
        ip = ["ip", "-n", self.names[host]]
        assert run(*ip, "link", "del", "br0")
        assert run(*ip, "addr", "add", f"{self.addresses[host]}/24", "dev", self.links[host])

    def inside(self, host, *more):
        return ["ip", "netns", "exec", self.names[host], *more]

    def mend(self, host):
        assert run("ip", "-n", self.names[host], "link", "set", self.links[host], "up")

    def cut(self, host):
        assert run("ip", "-n", self.names[host], "link", "set", self.links[host], "down")

    def lose(self, host):
        """What the host sends goes astray, though its link is up."""
        assert self._neighbour(host, "02:00:00:00:00:01", "permanent")

    def find(self, host):
        command = ["ip", "-n", self.names[1 - host], "-br", "link", "show", self.links[1 - host]]
        assert self._neighbour(host, subprocess.run(command, capture_output=True).stdout.split()[2], "reachable")

    def _neighbour(self, host, hardware, state):
        to = (self.addresses[1 - host], "lladdr", hardware, "dev", self.links[host], "nud", state)
        return run("ip", "-n", self.names[host], "neigh", "replace", *to)

    def close(self):
        for name in self.names:
            run("ip", "netns", "del", name)


def passes(hosts, cases):
    """Runs cases, pairs of a name and a function of the hosts, one after the other; whether all went well."""
    failed = 0
    for name, case in cases:
        try:
            case(hosts)
            print(f"ok   {name}", flush=True)
        except SkipTest as reason:
            print(f"SKIP: {name}: {reason}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {name}: {error!r}", flush=True)
    return failed == 0


def side_by_side(groups):
    """Runs groups of cases that wait most of their time, each between two hosts of its own; whether all went well."""
    with contextlib.ExitStack() as stack:
        pairs = []
        for _ in groups:
            pairs.append(Hosts())
            stack.callback(pairs[-1].close)
        with ThreadPoolExecutor(len(groups)) as pool:
            return all(list(pool.map(passes, pairs, groups)))
