"""Two versions of UCX do not mix: both sides say so by name, in time, and go on with their own kind.

UCX: none
TIMEOUT: 120
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


def main():
    system, wheel = builds()
    failed = 0
    for name, pair in (
        ("system server, wheel client", (system, wheel)),
        ("wheel server, system client", (wheel, system)),
    ):
        for options in ((), ("--tcp",)):
            try:
                refused(*pair, *options)
                print(f"ok   {name} {' '.join(options)}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAIL {name} {' '.join(options)}: {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
