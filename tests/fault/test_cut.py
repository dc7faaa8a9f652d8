"""A link that is cut between two hosts, without a reset: both sides are told in time.

Idle within 3 s, with data in flight within 2 s; a second is given on top under a sanitizer. Closing is as quick, also
where a longer silence is allowed.

TIMEOUT: 180
"""

import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("HAWSER_SOURCE_DIR", "."), "tests"))
from support.peers import SANITIZED, dial, run, serve, side_by_side

SLACK = 1000 if SANITIZED else 0


def pair(hosts, *environment, close=500):
    close = ("--close", str(close))
    server = serve("--host", "0.0.0.0", *close, prefix=hosts.inside(0, "unshare", "--ipc", *environment))
    client = dial(hosts.addresses[0], server.port, *close, prefix=hosts.inside(1, "unshare", "--ipc", *environment))
    server.hear("accepted")
    client.echo(8)
    return server, client


def cut(hosts):
    """Takes the link down; gives the monotonic time in milliseconds."""
    before = time.monotonic() * 1000
    hosts.cut(1)
    return before


def told(peer, since, limit):
    _, status, when = peer.hear("disconnected", timeout=20).split()
    late = float(when) - since
    assert status in ("KEEPALIVE", "CONNECTION_RESET", "TIMED_OUT"), f"{peer.name}: {status}"
    assert late <= limit + SLACK, f"{peer.name} was told after {late:.0f} ms, {limit} ms allowed"
    return late


def finish(*peers):
    """After the report a peer leaves quickly: there is nobody left to say goodbye to."""
    for peer in peers:
        start = time.monotonic()
        assert peer.end() == 0, f"{peer.name} ended badly: {peer.lines[-3:]}"
        assert time.monotonic() - start < 5, f"{peer.name} took {time.monotonic() - start:.1f} s to leave"


def idle(hosts):
    server, client = pair(hosts)
    since = cut(hosts)
    reports = [told(peer, since, 3000) for peer in (client, server)]
    print(f"   idle: told after {reports[0]:.0f} ms (client), {reports[1]:.0f} ms (server)")
    finish(client, server)


def busy(hosts, size):
    server, client = pair(hosts)
    client.ask(f"flood {size}", "done")
    time.sleep(0.3)  # let the buffers of the connection fill
    since = cut(hosts)
    reports = [told(client, since, 2000), told(server, since, 3000)]
    print(f"   {size} B in flight: told after {reports[0]:.0f} ms (sender), {reports[1]:.0f} ms (receiver)")
    finish(client, server)


def with_operations(hosts):
    """A pending receive and a pending send end with the report, not with their own deadline."""
    server, client = pair(hosts)
    client.say("recv 15000")
    time.sleep(0.1)
    cut(hosts)
    start = time.monotonic()
    _, status, elapsed = client.hear("ended").split()
    assert status in ("KEEPALIVE", "CONNECTION_RESET"), status
    assert time.monotonic() - start < 3 + SLACK / 1000, elapsed
    finish(client, server)


def waiting(hosts):
    """A send waits for its receiver: nothing is on its way."""
    server, client = pair(hosts)
    client.say("sync 1048576 15000 0")
    time.sleep(1)
    since = cut(hosts)
    _, status, _ = client.hear("ended").split()
    late = time.monotonic() * 1000 - since
    assert status in ("KEEPALIVE", "CONNECTION_RESET"), status
    assert late <= 2000 + SLACK, f"the sender was told after {late:.0f} ms"
    print(f"   a send that waits for its receiver: told after {late:.0f} ms")
    finish(client, server)


PATIENT = ("env", "UCX_TCP_KEEPIDLE=4s", "UCX_TCP_KEEPINTVL=2s", "UCX_TCP_KEEPCNT=3")


def patient(hosts):
    """UCX's settings of keepalive let a link be down for longer, with data on its way too."""
    server, client = pair(hosts, *PATIENT)
    cut(hosts)
    repair = threading.Timer(4, mend, (hosts,))
    repair.start()
    client.echo(8)
    repair.join()
    finish(client, server)


def lossy(hosts):
    """Now and then a packet is lost, the kernel's question to an idle peer among them: nobody is lost."""
    server, client = pair(hosts)
    for i in range(12):
        hosts.lose(1)
        time.sleep(0.3)
        hosts.find(1)
        time.sleep(0.7 + 0.04 * i)  # the kernel asks once a second: not each time at the same point
    client.echo(8)
    finish(client, server)


def closing(hosts):
    """Closing does not wait for a silent peer; what was sent before comes once the link is mended, and the goodbye."""
    server, client = pair(hosts, *PATIENT, close=8000)
    server.say("take 64 20000")
    cut(hosts)
    assert client.ask("pass 64 5000", "passed").startswith("passed OK")
    start = time.monotonic()
    client.ask("close", "closed")
    took = time.monotonic() - start
    assert took < 2.5 + SLACK / 1000, f"closing took {took:.1f} s"
    mend(hosts)
    heard = {tuple(server.hear("took", "disconnected").split()[:-1]) for _ in range(2)}
    assert heard == {("took", "64", "OK"), ("disconnected", "PEER_CLOSED")}, heard
    print(f"   closing took {took:.1f} s")
    finish(client, server)


def mend(hosts):
    assert run("ip", "-n", hosts.names[1], "link", "set", hosts.links[1], "up")
    for host in range(2):
        hosts.wait_until_up(host)


# Each group has two hosts of its own, and waits most of its time: they run at the same time.
GROUPS = (
    (
        ("idle", idle),
        ("busy with 8 B", lambda h: busy(h, 8)),
        ("busy with 1 MiB", lambda h: busy(h, 1 << 20)),
        ("pending operations", with_operations),
        ("a rendezvous that waits", waiting),
        ("again, after mending", idle),
    ),
    (
        ("a link that is down for a while", patient),
        ("closing while the link is down", closing),
    ),
    (("packets that are lost", lossy),),
)


def mended(group):
    """The group's cases, each of which leaves its link up."""

    def then_mend(case):
        def run_case(hosts):
            try:
                case(hosts)
            finally:
                mend(hosts)

        return run_case

    return [(name, then_mend(case)) for name, case in group]


def main():
    return 0 if side_by_side([mended(group) for group in GROUPS]) else 1


if __name__ == "__main__":
    sys.exit(main())
