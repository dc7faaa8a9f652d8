"""A peer that lives but does nothing (SIGSTOP): deadlines hold, closing is bounded, and after SIGCONT
everything that was not given up goes on.

SHARED
TIMEOUT: 180
"""

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.join(os.environ.get("HAWSER_SOURCE_DIR", "."), "tests"))
from support.peers import Peer, dial, serve

CLOSE_MS = 700


def ended(client, command, status, at_least, at_most):
    _, got, elapsed = client.ask(command, "ended").split()
    assert got == status, f"{command}: {got}, not {status}"
    assert at_least <= float(elapsed) <= at_most, f"{command} took {elapsed} ms"


def stop(peer):
    """Returns once the peer has really stopped."""
    peer.kill(signal.SIGSTOP)
    while Path(f"/proc/{peer.pid}/stat").read_text().split(") ")[1][0] not in "Tt":
        time.sleep(0.001)


def deadlines(*options):
    server = serve("--host", "127.0.0.1")
    client = dial("127.0.0.1", server.port, *options)
    client.echo(8)
    stop(server)
    ended(client, "recv 200", "TIMED_OUT", 200, 5000)
    ended(client, "recv 50", "TIMED_OUT", 50, 5000)
    server.kill(signal.SIGCONT)
    client.echo(8)
    client.echo(1 << 20)
    assert client.end() == 0 and server.end() == 0


def late_send_aborts(*options):
    """A send that nobody matches, with the option that lets its deadline abort the connection."""
    server = serve("--host", "127.0.0.1")
    client = dial("127.0.0.1", server.port, *options)
    client.echo(8)
    stop(server)
    ended(client, "sync 1048576 300 1", "TIMED_OUT", 300, 6000)
    server.kill(signal.SIGCONT)
    server.hear("disconnected")
    assert client.end() == 0 and server.end() == 0


def close_is_bounded(*options):
    server = serve("--host", "127.0.0.1")
    client = dial("127.0.0.1", server.port, "--close", str(CLOSE_MS), *options)
    client.echo(8)
    stop(server)
    start = time.monotonic()
    client.say("close")
    client.hear("closed", timeout=20)
    took = (time.monotonic() - start) * 1000
    assert took < CLOSE_MS + 3000, f"closing took {took:.0f} ms"
    server.kill(signal.SIGCONT)
    server.hear("disconnected")
    assert client.end() == 0 and server.end() == 0


def close_with_data_is_bounded(*options):
    """The same with far more data on its way than the peer has taken."""
    server = serve("--host", "127.0.0.1")
    client = dial("127.0.0.1", server.port, "--close", str(CLOSE_MS), *options)
    client.echo(8)
    stop(server)
    client.ask("flood 1048576", "done")
    time.sleep(0.2)
    start = time.monotonic()
    client.say("close")
    client.hear("closed", timeout=20)
    took = (time.monotonic() - start) * 1000
    assert took < CLOSE_MS + 3000, f"closing took {took:.0f} ms"
    assert client.end() == 0
    server.kill(signal.SIGCONT)
    server.hear("disconnected")
    assert server.end() == 0


def data_waits_for_the_peer(*options):
    """Far more data on its way than the peer has taken, for longer than a lost peer is left: it is not lost."""
    server = serve("--host", "127.0.0.1")
    client = dial("127.0.0.1", server.port, *options)
    client.echo(8)
    stop(server)
    client.ask("flood 4096", "done")
    assert client.line(5) is None, client.lines
    server.kill(signal.SIGCONT)
    client.echo(8)
    client.echo(1 << 20)
    assert client.end() == 0 and server.end() == 0


def connect_deadline(*options):
    """A stopped listener: the kernel takes the connection, nobody answers."""
    server = serve("--host", "127.0.0.1")
    stop(server)
    client = Peer("dial", "127.0.0.1", server.port, "--connect", "600", *options)
    line = client.hear("connect", "connected", timeout=20)
    assert line.startswith("connect TIMED_OUT"), line
    assert client.end() == 0
    server.kill(signal.SIGCONT)
    second = dial("127.0.0.1", server.port, *options)
    second.echo(8)
    assert second.end() == 0 and server.end() == 0


def others_are_served(*options):
    """One stopped client does not hold up the server's other clients."""
    server = serve("--host", "127.0.0.1")
    stopped = dial("127.0.0.1", server.port, *options)
    other = dial("127.0.0.1", server.port, *options)
    stopped.ask("flood 4096", "done")
    other.echo(8)
    stop(stopped)
    start = time.monotonic()
    other.echo(4096, 100)
    assert time.monotonic() - start < 10
    stopped.kill(signal.SIGCONT)
    stopped.destroy()
    assert other.end() == 0 and server.end() == 0


CASES = (
    deadlines,
    late_send_aborts,
    close_is_bounded,
    close_with_data_is_bounded,
    data_waits_for_the_peer,
    connect_deadline,
    others_are_served,
)


def main():
    failed = 0
    for case in CASES:
        for options in ((), ("--tcp",)):
            name = f"{case.__name__} {' '.join(options)}"
            if len(sys.argv) > 1 and case.__name__ not in sys.argv[1:]:
                continue
            try:
                case(*options)
                print(f"ok   {name}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAIL {name}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
