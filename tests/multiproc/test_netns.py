"""Peers in different namespaces: what carries a connection follows from who can reach whose memory.

TIMEOUT: 180
"""

import os
import sys
import time
from unittest import SkipTest

sys.path.insert(0, os.path.join(os.environ.get("HAWSER_SOURCE_DIR", "."), "tests"))
from support.peers import (
    CAP,
    LOCAL,
    REMOTE,
    SANITIZED,
    SHM,
    SHM_FAILED,
    TCP,
    dial,
    dial_later,
    fields,
    go,
    refused,
    run,
    serve,
    side_by_side,
)

SIZES = (0, 8, 4096, 65536, 1 << 20, 5 << 20)


def check(server, client, transport, isolated, reason):
    """Both sides tell the same story, and data passes."""
    accepted = fields(server.hear("accepted"))
    for side, info in (("server", accepted), ("client", client.info)):
        got = (info["transports"] & (SHM | TCP), info["reason"])
        assert got == (transport, reason), f"{side}: {info}, expected {(transport, reason)}"
        # A client cannot know where its peer is before it has dialled: it may have a worker of its own by TCP too.
        assert info["isolated"] == isolated or (side == "client" and not isolated), f"{side}: {info}"
    for size in SIZES:
        client.echo(size)


def finish(*peers):
    for peer in peers:
        code = peer.end()
        assert code == 0, f"{peer.name}: exit code {code}; {peer.lines[-3:]}"


def two_hosts(hosts):
    """Own network, own IPC namespace: as two machines are."""
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0, "unshare", "--ipc"))
    client = dial(hosts.addresses[0], server.port, prefix=hosts.inside(1, "unshare", "--ipc"))
    assert client.info["peer"] == f"{hosts.addresses[0]}:{server.port}", client.info
    check(server, client, TCP, 0, REMOTE)
    finish(client, server)


def two_networks_one_memory(hosts):
    """Own networks, but one IPC namespace: shared memory although the addresses differ."""
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0))
    client = dial(hosts.addresses[0], server.port, prefix=hosts.inside(1))
    check(server, client, SHM, 1, LOCAL)
    finish(client, server)


def one_network_two_memories(hosts):
    """The loopback address, but different IPC namespaces: TCP although the address is local."""
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0))
    client = dial("127.0.0.1", server.port, prefix=hosts.inside(0, "unshare", "--ipc"))
    check(server, client, TCP, 0, REMOTE)
    finish(client, server)


def works(server, client):
    """Whatever UCX can do here: data passes, the two sides agree, and a fallback has its reason."""
    accepted = fields(server.hear("accepted"))
    for info in (accepted, client.info):
        assert info["isolated"] == (1 if info["transports"] & SHM else info["isolated"]), info
        if not info["transports"] & SHM:
            assert info["transports"] & TCP, info
            assert info["reason"] in (REMOTE, SHM_FAILED, CAP), info
    assert accepted["transports"] & SHM == client.info["transports"] & SHM, (accepted, client.info)
    for size in SIZES:
        client.echo(size)
    return client.info


def other_pid_namespace(hosts):
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0))
    client = dial(
        "127.0.0.1", server.port, prefix=hosts.inside(0, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    )
    print("   other PID namespace:", works(server, client))
    finish(client, server)


def other_user_namespace(hosts):
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0))
    client = dial("127.0.0.1", server.port, prefix=hosts.inside(0, "unshare", "--user", "--map-root-user"))
    print("   other user namespace:", works(server, client))
    finish(client, server)


def other_user(hosts):
    """A peer of another user cannot open our shared memory."""
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0))
    client = dial(
        "127.0.0.1", server.port, prefix=hosts.inside(0, "setpriv", "--reuid", "65534", "--clear-groups", "--")
    )
    print("   other user:", works(server, client))
    finish(client, server)


def at_once(start):
    """A listener that leaves a client without an answer costs it half its time to connect, 5 s."""
    took = time.monotonic() - start
    assert took < (20 if SANITIZED else 4), f"connecting took {took:.1f} s"
    return took


def late_device(hosts, both_late, settled, namespace):
    """Processes that are older than the device between them, which UCX for this reason does not know."""
    hosts.cut(0)
    hosts.cut(1)
    time.sleep(0.1)
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0, *namespace))
    client = dial_later(hosts.addresses[0], server.port, prefix=hosts.inside(1, *namespace))
    client.ask("stats", "stats")  # it has opened its worker
    for host in (0, 1):
        hosts.mend(host)
    if settled:
        for host in (0, 1):
            hosts.wait_until_up(host)
    if not both_late:
        client.end()
        client = dial_later(hosts.addresses[0], server.port, prefix=hosts.inside(1, *namespace))
    start = time.monotonic()
    go(client)
    took = at_once(start)
    accepted = fields(server.hear("accepted"))
    assert accepted["transports"] & SHM == client.info["transports"] & SHM, (accepted, client.info)
    if namespace:
        assert not accepted["transports"] & SHM, accepted
    elif os.environ.get("HAWSER_UCX") != "system":  # UCX 1.13's shared memory begins with the old context
        assert accepted["transports"] & SHM, accepted
    for size in SIZES:
        client.echo(size)
    print(f"   connected after {took:.2f} s by {accepted['lanes']}")
    start = time.monotonic()
    again = dial(hosts.addresses[0], server.port, prefix=hosts.inside(1, *namespace))
    at_once(start)
    by_memory = again.info["transports"] & SHM
    assert again.info["reason"] == (REMOTE if namespace else LOCAL if by_memory else SHM_FAILED), again.info
    again.echo(8)
    finish(again, client, server)


def device_later_than_both(hosts):
    late_device(hosts, True, True, ("unshare", "--ipc"))


def device_later_than_the_server(hosts):
    late_device(hosts, False, True, ("unshare", "--ipc"))


def device_that_begins_to_run(hosts):
    late_device(hosts, True, False, ("unshare", "--ipc"))


def device_later_than_both_beside_shared_memory(hosts):
    late_device(hosts, True, True, ())


def behind_bridges(hosts):
    """The hosts' addresses are those of bridges, which UCX passes over since 1.16 unless it is told."""
    hosts.bridge(0)
    hosts.bridge(1)
    own = ("unshare", "--ipc")
    try:
        for host, namespace, expected in (
            (1, own, (TCP, 0, REMOTE)),
            (1, (), (SHM, 1, LOCAL)),
            (0, (), (SHM, 1, LOCAL)),
        ):
            server = serve("--host", hosts.addresses[0], prefix=hosts.inside(0, *namespace))
            client = dial(hosts.addresses[0], server.port, prefix=hosts.inside(host, *namespace))
            check(server, client, *expected)
            finish(client, server)
    finally:
        hosts.unbridge(0)
        hosts.unbridge(1)


def many_devices(hosts):
    """The server has further devices, and the client a route to each: data passes, by the device that was dialled."""
    ip = ["ip", "-n", hosts.names[0]]
    others = [("hwsx0", "hwsx1", "10.97.0.1", "10.96.0.1"), ("hwsx2", "hwsx3", "10.95.0.1", "10.94.0.1")]
    for a, b, *addresses in others:
        assert run(*ip, "link", "add", a, "type", "veth", "peer", "name", b)
        for device, address in zip((a, b), addresses, strict=True):
            assert run(*ip, "addr", "add", f"{address}/24", "dev", device)
            assert run(*ip, "link", "set", device, "up")
        for device in (a, b):
            hosts.wait_until_up(0, device)
    assert run("ip", "-n", hosts.names[1], "route", "add", "default", "via", hosts.addresses[0])
    own = ("unshare", "--ipc")
    try:
        for to, address in ((0, hosts.addresses[0]), (1, hosts.addresses[1])):
            server = serve("--host", "0.0.0.0", prefix=hosts.inside(to, *own))
            for _ in range(3):
                client = dial(address, server.port, prefix=hosts.inside(1 - to, *own))
                accepted = fields(server.hear("accepted"))
                if os.environ.get("HAWSER_UCX") != "system":  # 1.13.1 tries shared memory first, and that any device
                    assert accepted["lanes"] == f"tcp/{hosts.links[to]}", accepted
                for size in SIZES:
                    client.echo(size)
                finish(client)
            finish(server)
    finally:
        assert run("ip", "-n", hosts.names[1], "route", "del", "default")
        for a, *_ in others:
            assert run(*ip, "link", "del", a)


def no_way(hosts):
    """Where nobody listens, and where no way leads."""
    inside = hosts.inside(1, "unshare", "--ipc")
    assert refused(hosts.addresses[0], 9, prefix=inside) == "REFUSED"
    assert refused("203.0.113.9", 9, prefix=inside) == "UNREACHABLE"
    assert run("ip", "-n", hosts.names[1], "route", "add", "unreachable", "203.0.113.0/24")
    try:
        assert refused("203.0.113.9", 9, prefix=inside) == "UNREACHABLE"
    finally:
        assert run("ip", "-n", hosts.names[1], "route", "del", "unreachable", "203.0.113.0/24")


def second_address(hosts):
    """UCX receives data at a device's first address only; the sides' ports decide who of the two begins. Whoever cannot
    connect is not told that nobody listens."""
    second = "10.99.0.7"
    assert run("ip", "-n", hosts.names[0], "addr", "add", f"{second}/24", "dev", hosts.links[0])
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0, "unshare", "--ipc"))
    reasons = [refused(second, server.port, prefix=hosts.inside(1, "unshare", "--ipc")) for _ in range(6)]
    print("   ", reasons)
    assert set(reasons) <= {None, "UNREACHABLE"}
    finish(server)


SMALL = 'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$@"'


def crowd(server, env=None):
    """What 16 clients travel on that live in the server's namespaces; none may fail, or die of SIGBUS."""
    inside = ["nsenter", "--target", str(server.pid), "--mount", "--net", "--ipc"]
    clients = [dial("127.0.0.1", server.port, prefix=inside, env=env) for _ in range(16)]
    infos = [client.info for client in clients]
    for size in (8, 65536, 1 << 20):
        for client in clients:
            client.echo(size, 2)
    by_memory = [info for info in infos if info["transports"] & SHM]
    by_tcp = [info for info in infos if not info["transports"] & SHM]
    print(f"   {len(by_memory)} by shared memory, {len(by_tcp)} by TCP")
    assert all(info["reason"] in (CAP, SHM_FAILED) for info in by_tcp), by_tcp
    assert all(info["isolated"] for info in by_memory), by_memory
    stats = fields(server.ask("stats", "stats"))
    assert stats["lane_violations"] == 0 and stats["endpoints"] == 16, stats
    finish(*clients, server)
    return by_memory, by_tcp


def small_shared_memory(hosts):
    """A /dev/shm of 16 MB, as in a small container: nothing lies there."""
    _, by_tcp = crowd(serve("--host", "0.0.0.0", prefix=hosts.inside(0, "unshare", "--mount", "sh", "-c", SMALL, "sh")))
    assert not by_tcp, by_tcp


def small_shared_memory_of_posix(hosts):
    """The same where the user wants what lies there."""
    env = {"UCX_TLS": "posix,cma,self,tcp"}
    prefix = hosts.inside(0, "unshare", "--mount", "sh", "-c", SMALL, "sh")
    _, by_tcp = crowd(serve("--host", "0.0.0.0", prefix=prefix, env=env), env)
    assert by_tcp, "16 MB cannot hold 16 connections"


FEW = 'echo 24 > /proc/sys/kernel/shmmni && exec "$@"'
NONE = 'echo 0 > /proc/sys/kernel/shmmni && exec "$@"'


def few_segments(hosts):
    """The kernel gives 24 segments to the whole IPC namespace."""
    prefix = hosts.inside(0, "unshare", "--ipc", "sh", "-c", FEW, "sh")
    by_memory, by_tcp = crowd(serve("--host", "0.0.0.0", prefix=prefix))
    assert by_memory and by_tcp, "24 segments hold some of 16 connections"


def no_segments(hosts):
    prefix = hosts.inside(0, "unshare", "--ipc", "sh", "-c", NONE, "sh")
    by_memory, _ = crowd(serve("--host", "0.0.0.0", prefix=prefix))
    assert not by_memory, by_memory


def two_shared_memories(hosts):
    """One IPC namespace, but each its own /dev/shm."""
    server = serve("--host", "0.0.0.0", prefix=hosts.inside(0, "unshare", "--mount", "sh", "-c", SMALL, "sh"))
    client = dial("127.0.0.1", server.port, prefix=hosts.inside(0))
    check(server, client, SHM, 1, LOCAL)
    finish(client, server)


def two_shared_memories_of_posix(hosts):
    """The same where the user wants what lies there: UCX expects what is not there."""
    env = {"UCX_TLS": "posix,cma,self,tcp"}
    prefix = hosts.inside(0, "unshare", "--mount", "sh", "-c", SMALL, "sh")
    server = serve("--host", "0.0.0.0", prefix=prefix, env=env)
    client = dial("127.0.0.1", server.port, prefix=hosts.inside(0), env=env)
    print("   own /dev/shm each:", works(server, client))
    finish(client, server)


OWN_MEMORY = ("unshare", "--ipc", "true")
OWN_FILES = ("unshare", "--mount", "sh", "-c", SMALL, "sh", "true")

# Each group has two hosts of its own, and waits most of its time: they run at the same time. A case has what must be
# permitted for it.
GROUPS = (
    (
        (two_hosts, OWN_MEMORY),
        (two_networks_one_memory, ("true",)),
        (one_network_two_memories, OWN_MEMORY),
        (other_pid_namespace, ("unshare", "--pid", "--fork", "--mount-proc", "true")),
        (other_user_namespace, ("unshare", "--user", "--map-root-user", "true")),
        (other_user, ("setpriv", "--reuid", "65534", "--clear-groups", "--", "true")),
        (behind_bridges, OWN_MEMORY),
        (many_devices, OWN_MEMORY),
        (no_way, OWN_MEMORY),
        (second_address, OWN_MEMORY),
    ),
    (
        (device_later_than_both, OWN_MEMORY),
        (device_later_than_the_server, OWN_MEMORY),
        (device_that_begins_to_run, OWN_MEMORY),
        (device_later_than_both_beside_shared_memory, ("true",)),
    ),
    (
        (small_shared_memory, OWN_FILES),
        (small_shared_memory_of_posix, OWN_FILES),
        (few_segments, ("unshare", "--ipc", "sh", "-c", FEW, "sh", "true")),
        (no_segments, ("unshare", "--ipc", "sh", "-c", NONE, "sh", "true")),
        (two_shared_memories, OWN_FILES),
        (two_shared_memories_of_posix, OWN_FILES),
    ),
)


def where_permitted(case, probe):
    def run_case(hosts):
        if not run(*hosts.inside(0, *probe)):
            raise SkipTest(f"`{' '.join(probe)}` is not permitted here")
        case(hosts)

    return case.__name__, run_case


def main():
    chosen = sys.argv[1:]
    wanted = [[each for each in group if not chosen or each[0].__name__ in chosen] for group in GROUPS]
    return 0 if side_by_side([[where_permitted(*each) for each in group] for group in wanted if group]) else 1


if __name__ == "__main__":
    sys.exit(main())
