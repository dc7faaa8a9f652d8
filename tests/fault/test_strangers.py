"""What comes to an open port uninvited: garbage, half a handshake, silence, a port scan.

The listener goes on serving, counts what it can see, and keeps no descriptor of any of it.

SHARED
TIMEOUT: 180
"""

import os
import random
import resource
import select
import socket
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("HAWSER_SOURCE_DIR", "."), "tests"))
import contextlib

from support.peers import PATIENCE, Peer, dial, fields, serve

HELLO_MS = 1500  # the server's deadline for a hello


def fds(peer):
    return len(os.listdir(f"/proc/{peer.pid}/fd"))


def counters(server):
    server.say("stats")
    server.hear("stats")
    return fields(server.hear("listener"))


def fds_at_rest(server):
    """The number once nothing is made in the background any more."""
    last, since, end = fds(server), time.monotonic(), time.monotonic() + PATIENCE
    while time.monotonic() - since < 0.3:
        assert time.monotonic() < end, "descriptors come and go"
        time.sleep(0.02)
        if fds(server) != last:
            last, since = fds(server), time.monotonic()
    return last


def settled(server, limit):
    """Waits until the server holds no more than `limit` descriptors."""
    end = time.monotonic() + PATIENCE
    while fds(server) > limit:
        assert time.monotonic() < end, f"{fds(server)} descriptors, {limit} before"
        time.sleep(0.02)


def connect(server):
    return socket.create_connection(("127.0.0.1", int(server.port)), timeout=5)


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def swallow(sock, seconds):
    """Reads until the other side hangs up; gives whether it did."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([sock], [], [], max(0.0, end - time.monotonic()))[0]:
            try:
                if not sock.recv(4096):
                    return True
            except OSError:
                return True
    return False


def garbage(server, witness):
    dice = random.Random(7)
    for size in (1, 3, 16, 100, 1000, 65536):
        for _ in range(5):
            with connect(server) as sock, contextlib.suppress(OSError):  # hung up on already
                sock.sendall(dice.randbytes(size))
            witness.echo(8, 1)
    for text in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"\0" * 4096, b"\xff" * 4096):
        with connect(server) as sock:
            with contextlib.suppress(OSError):
                sock.sendall(text)
            witness.echo(8, 1)


def port_scan(server, witness):
    for i in range(200):
        sock = connect(server)
        if i % 2:
            reset(sock)
        else:
            sock.close()
    witness.echo(8, 3)


def silence(server, witness):
    """Connections that say nothing do not stop others, and are not kept for ever."""
    silent = [connect(server) for _ in range(20)]
    witness.echo(4096, 3)
    late = dial("127.0.0.1", server.port)
    late.echo(8)
    assert late.end() == 0
    for sock in silent:
        assert swallow(sock, HELLO_MS / 1000 + PATIENCE), "a silent connection is kept open"
        sock.close()


class Relay(threading.Thread):
    """Stands between a client and the server; passes so many bytes of the client, then stalls or cuts."""

    def __init__(self, port, allowed, then):
        super().__init__(daemon=True)
        self.allowed, self.then, self.passed = allowed, then, 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.target = ("127.0.0.1", int(port))
        self.over = threading.Event()
        self.start()

    def run(self):
        self.listening.settimeout(0.2)
        ends = []
        while not self.over.is_set():
            try:
                client, _ = self.listening.accept()
            except TimeoutError:
                continue
            worker = threading.Thread(target=self.pump, args=(client,), daemon=True)
            worker.start()
            ends.append(worker)
        for worker in ends:
            worker.join()

    def pump(self, client):
        left = self.allowed
        with client, socket.create_connection(self.target) as server:
            while not self.over.is_set():
                for sock in select.select([client, server], [], [], 0.1)[0]:
                    try:
                        data = sock.recv(65536)
                        if not data:
                            return
                        if sock is server:
                            client.sendall(data)
                            continue
                        data = data[:left]
                        left -= len(data)
                        self.passed += len(data)
                        server.sendall(data)
                    except OSError:
                        return
                    if left == 0:
                        if self.then == "cut":
                            return
                        self.over.wait(HELLO_MS / 1000 + 1)
                        return

    def stop(self):
        self.over.set()
        self.join()
        self.listening.close()


def half_a_handshake(server, witness):
    """A real client whose first message is cut off, or stalls, after any number of bytes."""
    for then in ("cut", "stall"):
        for allowed in (1, 7, 20, 60, 150, 300):
            relay = Relay(server.port, allowed, then)
            client = Peer("dial", "127.0.0.1", str(relay.port), "--tcp", "--connect", str(HELLO_MS + 500))
            line = client.hear("connect", "connected")
            assert line.startswith("connect ") or relay.passed < allowed, f"{allowed} bytes, {then}: {line}"
            witness.echo(8, 1)
            relay.stop()
            assert client.end() == 0


def not_hawser(server, witness):
    """Plain UCX clients where only Hawser's are wanted: each is refused and counted."""
    before = counters(server)
    for i in range(3):
        client = Peer("dial", "127.0.0.1", server.port, "--raw", "--connect", "8000")
        line = client.hear("connect", "connected")
        assert line.startswith("connect "), line
        assert client.end() == 0
        witness.echo(8, 1)
        after = counters(server)
        assert after["strangers"] == before["strangers"] + i + 1, (before, after)
    assert after["accepted"] == before["accepted"], (before, after)


def killed_while_connecting(server, witness):
    """Clients that die at any moment of their connection."""
    for i in range(15):
        client = Peer("dial", "127.0.0.1", server.port, *(["--tcp"] if i % 2 else []))
        time.sleep(0.01 * i)
        client.destroy()
        witness.echo(8, 1)


def more_than_there_are_descriptors(server, witness):
    """What comes faster than it is ended takes the last descriptor; the server recovers when it is over.

    A new server: UCX 1.13 asks every 20 s whether peers live, and takes want of descriptors for a no.
    """
    flooded = serve("--host", "127.0.0.1", "--hello", str(HELLO_MS))
    try:
        before = dial("127.0.0.1", flooded.port)
        before.echo(8)
        quiet = fds_at_rest(flooded)
        resource.prlimit(flooded.pid, resource.RLIMIT_NOFILE, (quiet + 300, 4096))
        for _ in range(600):
            with contextlib.suppress(OSError), connect(flooded) as sock:
                sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        settled(flooded, quiet + 50)
        after = dial("127.0.0.1", flooded.port)
        for peer in (before, after):
            peer.echo(1 << 20)
            assert peer.end() == 0
        assert flooded.end() == 0
    finally:
        flooded.destroy()


CASES = (
    garbage,
    port_scan,
    silence,
    half_a_handshake,
    not_hawser,
    killed_while_connecting,
    more_than_there_are_descriptors,
)


def main():
    server = serve("--host", "127.0.0.1", "--hello", str(HELLO_MS), "--close", "500")
    witness = dial("127.0.0.1", server.port)
    failed = 0
    try:
        for size in (8, 65536):
            witness.echo(size)
        for case in CASES:
            if len(sys.argv) > 1 and case.__name__ not in sys.argv[1:]:
                continue
            before = fds_at_rest(server)
            try:
                case(server, witness)
                # A spare UCX worker may be made or used up meanwhile.
                settled(server, before + 12)
                print(f"ok   {case.__name__}: {counters(server)}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAIL {case.__name__}: {error}", flush=True)
                if server.process.poll() is not None:
                    break
        if not failed:
            stats = fields(server.ask("stats", "stats"))
            assert stats["lane_violations"] == 0, stats
            witness.echo(1 << 20)
            assert witness.end() == 0
            assert server.end() == 0
    finally:
        witness.destroy()
        server.destroy()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
