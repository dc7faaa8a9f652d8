"""Two versions of UCX do not mix: both sides say so by name, in time, and go on with their own kind.

By a listener and by worker addresses. The bytes of UCX alone (HWS_ADDRESS_PLAIN) carry no version, so that nothing
refuses them: what is asserted of them is what docs/concepts/worker-addresses.md says. UCX: none TIMEOUT: 120
"""

import glob
import os
import sys
import time

sys.path.insert(0, os.path.join(os.environ.get("HAWSER_SOURCE_DIR", "."), "tests"))
from support.peers import Peer, dial, fields, serve, skip


def builds():
    system = os.environ.get("HAWSER_UCX_SYSTEM", "system")
    wheel = os.environ.get("HAWSER_UCX_WHEEL") or os.environ.get("HAWSER_WHEEL_LIB") or ""
    if system == "system" and not any(
        glob.glob(f"{folder}/libucp.so.0")
        for folder in ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
    ):
        skip("the system has no UCX of its own")
    if not os.path.exists(os.path.join(wheel, "libucp.so.0")):
        skip("no second UCX: HAWSER_UCX_WHEEL or HAWSER_WHEEL_LIB names no folder with libucp.so.0")
    return system, wheel


def refused(server_ucx, client_ucx, *options):
    server = serve("--host", "127.0.0.1", env={"HAWSER_UCX": server_ucx})
    own = dial("127.0.0.1", server.port, env={"HAWSER_UCX": server_ucx})
    start = time.monotonic()
    client = Peer("dial", "127.0.0.1", server.port, "--connect", "10000", *options, env={"HAWSER_UCX": client_ucx})
    line = client.hear("connect", "connected")
    took = time.monotonic() - start
    assert line.startswith("connect PEER_VERSION:"), line
    assert took < 10, f"it took {took:.1f} s"
    server.say("stats")
    counted = fields(server.hear("listener"))
    assert counted["strangers"] >= 1 and counted["accepted"] == 1, counted
    own.echo(4096)
    late = dial("127.0.0.1", server.port, env={"HAWSER_UCX": server_ucx})
    late.echo(8)
    for peer in (client, own, late, server):
        assert peer.end() == 0, f"{peer.name}: {peer.lines[-3:]}"


FRAMED, HELLO, PLAIN, RAW_ENDPOINT = 0, 1, 2, 1
SHORT, LONG = 2000, 1000000


def by_address(owner, dialler, flags, endpoint_flags=0):
    """The dialler's word on connecting by the owner's address."""
    address = owner.ask(f"address {flags}", "address").split()[1]
    start = time.monotonic()
    dialler.say(f"by {address} {endpoint_flags} 5000")
    line = dialler.hear("connected", "connect")
    assert time.monotonic() - start < 6, f"it took {time.monotonic() - start:.1f} s"
    return line


def passes(owner, dialler, size):
    """Sends one message to the owner; the words of both."""
    owner.say(f"take {size} 3000")
    sent = dialler.ask(f"pass {size} 3000", "passed")
    return sent.split()[1], owner.hear("took").split()[2]


def own_kind(peer, ucx):
    """Another peer of the same UCX, in every way."""
    friend = serve("--host", "127.0.0.1", env={"HAWSER_UCX": ucx})
    for owner, dialler in ((friend, peer), (peer, friend)):
        for flags in (FRAMED, HELLO):
            line = by_address(owner, dialler, flags)
            assert line.startswith("connected "), f"{dialler.name}: {line}"
            if flags == HELLO:
                dialler.echo(LONG)
            else:
                assert passes(owner, dialler, LONG) == ("OK", "OK")
    assert friend.end() == 0, friend.lines[-3:]


def pair(owner_ucx, dialler_ucx, **env):
    return tuple(serve("--host", "127.0.0.1", env={"HAWSER_UCX": ucx, **env}) for ucx in (owner_ucx, dialler_ucx))


def refused_address(owner_ucx, dialler_ucx, flags):
    owner, dialler = pair(owner_ucx, dialler_ucx)
    line = by_address(owner, dialler, flags)
    assert line.startswith("connect PEER_VERSION:"), line
    for peer, ucx in ((owner, owner_ucx), (dialler, dialler_ucx)):
        own_kind(peer, ucx)
        assert peer.end() == 0, f"{peer.name}: {peer.lines[-3:]}"


def plain_address(owner_ucx, dialler_ucx, size, **env):
    owner, dialler = pair(owner_ucx, dialler_ucx, **env)
    line = by_address(owner, dialler, PLAIN, RAW_ENDPOINT)
    assert line.startswith("connected "), line
    assert passes(owner, dialler, size) == ("OK", "OK"), (owner.lines[-1], dialler.lines[-1])
    for peer, ucx in ((owner, owner_ucx), (dialler, dialler_ucx)):
        own_kind(peer, ucx)
        assert peer.end() == 0, f"{peer.name}: {peer.lines[-3:]}"


def plain_address_rendezvous(owner_ucx, dialler_ucx):
    """UCX 1.13 may end its process in an assertion: then whoever sent hears of it in time, and goes on."""
    owner, dialler = pair(owner_ucx, dialler_ucx)
    line = by_address(owner, dialler, PLAIN, RAW_ENDPOINT)
    assert line.startswith("connected "), line
    owner.say(f"take {LONG} 3000")
    answer = dialler.ask(f"pass {LONG} 3000", "passed", timeout=10).split()[1]
    assert answer in ("OK", "CONNECTION_RESET", "ENDPOINT_TIMEOUT", "TIMED_OUT"), answer
    owner.destroy()
    own_kind(dialler, dialler_ucx)
    assert dialler.end() == 0, dialler.lines[-3:]
    return answer


def cases(server, client):
    for options in ((), ("--tcp",)):
        yield f"listener {' '.join(options)}", lambda o=options: refused(server, client, *o)
    yield "address", lambda: refused_address(server, client, FRAMED)
    yield "address with a hello", lambda: refused_address(server, client, HELLO)
    yield "plain address, a short message", lambda: plain_address(server, client, SHORT)
    yield (
        "plain address, a long message without rendezvous",
        lambda: plain_address(server, client, LONG, UCX_RNDV_THRESH="inf"),
    )
    yield "plain address, a long message", lambda: plain_address_rendezvous(server, client)


def main():
    system, wheel = builds()
    failed = 0
    for name, both in (
        ("system server, wheel client", (system, wheel)),
        ("wheel server, system client", (wheel, system)),
    ):
        for case, run in cases(*both):
            try:
                answer = run()
                print(f"ok   {name}: {case} {answer or ''}", flush=True)
            except (AssertionError, BrokenPipeError) as error:
                failed += 1
                print(f"FAIL {name}: {case}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
