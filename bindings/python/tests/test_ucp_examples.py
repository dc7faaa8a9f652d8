"""The examples of UCX-Py's documentation: two programs each, with UCX-Py's calls only. TIMEOUT: 240"""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from ucp.benchmarks.utils import _run_cluster_server, _run_cluster_workers, run_cluster_server, run_cluster_workers
from ucp_support import event_loop_policy, fresh_ucp  # noqa: F401

import ucp

mp = multiprocessing.get_context("spawn")

ARRAYS_SERVER = """
import asyncio, sys
import numpy as np
import ucp

n_bytes = int(sys.argv[1])
host = ucp.get_address(ifname="lo")

async def send(ep):
    arr = np.empty(n_bytes, dtype="u1")
    await ep.recv(arr)
    assert np.count_nonzero(arr) == np.array(0, dtype=np.int64)
    arr += 1
    await ep.send(arr)
    await ep.close()
    lf.close()

async def main():
    global lf
    lf = ucp.create_listener(send)
    print(lf.port, flush=True)
    while not lf.closed():
        await asyncio.sleep(0.1)

asyncio.run(main())
"""

ARRAYS_CLIENT = """
import asyncio, sys
import numpy as np
import ucp

n_bytes = int(sys.argv[1])

async def main():
    host = ucp.get_address(ifname="lo")
    ep = await ucp.create_endpoint(host, int(sys.argv[2]))
    msg = np.zeros(n_bytes, dtype="u1")
    await ep.send(msg)
    resp = np.empty_like(msg)
    await ep.recv(resp)
    await ep.close()
    np.testing.assert_array_equal(msg + 1, resp)

asyncio.run(main())
"""

OBJECTS_SERVER = """
import asyncio, sys
import ucp

async def echo_server(ep):
    while True:
        obj = await ep.recv_obj()
        await ep.send_obj(obj)
        if obj == b"last":
            lf.close()

async def main():
    global lf
    lf = ucp.create_listener(echo_server)
    print(lf.port, flush=True)
    while not lf.closed():
        await asyncio.sleep(0.1)

asyncio.run(main())
"""

OBJECTS_CLIENT = """
import asyncio, sys
import ucp

async def main():
    client = await ucp.create_endpoint(ucp.get_address(), int(sys.argv[2]))
    for msg in (bytearray(b"hello, world"), bytearray(int(sys.argv[1])), b"last"):
        await client.send_obj(msg)
        assert await client.recv_obj() == msg

asyncio.run(main())
"""


@pytest.mark.parametrize(
    "server, client", [(ARRAYS_SERVER, ARRAYS_CLIENT), (OBJECTS_SERVER, OBJECTS_CLIENT)], ids=["arrays", "objects"]
)
@pytest.mark.parametrize("size", [1, 1 << 26])
@pytest.mark.parametrize("env", [{}, {"UCXPY_NON_BLOCKING_MODE": "0", "UCXPY_IFNAME": "lo"}], ids=["", "non-blocking"])
def test_two_programs(server, client, size, env):
    env = {**os.environ, **env}
    with subprocess.Popen(
        [sys.executable, "-c", server, str(size)], stdout=subprocess.PIPE, text=True, env=env
    ) as listening:
        try:
            port = listening.stdout.readline().strip()
            assert port.isdigit()
            subprocess.run([sys.executable, "-c", client, str(size), port], check=True, timeout=100, env=env)
            assert listening.wait(100) == 0
        finally:
            listening.kill()


async def sum_of_ranks(rank, eps, base):
    """Everybody tells everybody its rank."""
    into = {other: np.empty(1, "u4") for other in eps}
    await asyncio.gather(
        *(ep.send(np.array([rank], "u4")) for ep in eps.values()),
        *(ep.recv(into[other]) for other, ep in eps.items()),
    )
    assert all(into[other][0] == other for other in eps)
    return base + rank + sum(int(a[0]) for a in into.values())


def plain_function(rank, eps, args):
    return (rank, len(eps), args)


def test_cluster_on_two_nodes():
    with tempfile.NamedTemporaryFile("r") as file:
        server, results = _run_cluster_server(file.name, 4)
        while not file.read():
            pass
        nodes = [_run_cluster_workers(file.name, 4, 2, node, sum_of_ranks, 100) for node in range(2)]
        for process in [*nodes[0], *nodes[1]]:
            process.join(100)
            assert process.exitcode == 0
        assert [results.get(timeout=100) for _ in range(4)] == [106] * 4
        server.join(100)
        assert server.exitcode == 0


def test_cluster_that_blocks(tmp_path):
    path = str(tmp_path / "server")
    workers = mp.Process(target=when_there, args=(path,))
    workers.start()
    assert run_cluster_server(path, 2) == [(0, 1, "args"), (1, 1, "args")]
    workers.join(100)
    assert workers.exitcode == 0
    with pytest.raises(ValueError):
        run_cluster_workers(None, 1, 1, 0, plain_function)


def when_there(path):
    while not os.path.exists(path) or not os.path.getsize(path):
        pass
    run_cluster_workers(path, 2, 2, 0, plain_function, "args", [{}, {}])


def silent_server(there):
    there.send(bytes(ucp.get_worker_address()))
    there.recv()
    ucp.reset()
    there.send("gone")


@pytest.mark.parametrize("how", ["send", "am_send", "recv", "am_recv"])
async def test_by_address_to_one_who_leaves(how, monkeypatch):
    """The peer makes no progress while we connect, and is gone when we speak."""
    monkeypatch.setenv("UCX_KEEPALIVE_INTERVAL", "100ms")
    here, there = mp.Pipe()
    process = mp.Process(target=silent_server, args=(there,))
    process.start()
    address = ucp.get_ucx_address_from_buffer(here.recv())
    ep = await asyncio.wait_for(ucp.create_endpoint_from_worker_address(address), 20)
    calls = {
        "send": lambda: ep.send(np.zeros(10), tag=0, force_tag=True),
        "recv": lambda: ep.recv(np.zeros(10), tag=0, force_tag=True),
        "am_send": lambda: ep.am_send(np.zeros(10)),
        "am_recv": lambda: ep.am_recv(),
    }
    expected = ucp.exceptions.UCXCanceled
    if "send" in how:
        expected = (ucp.exceptions.UCXError, ucp.exceptions.UCXConnectionReset)
    here.send("connected")
    assert here.recv() == "gone"
    with pytest.raises(expected):
        while True:  # what is sent before its end is noticed is only lost
            await asyncio.wait_for(calls[how](), 20)
    process.join(20)
    assert process.exitcode == 0
    ep.abort()


def answer_by_address(pipe):
    async def main():
        pipe.send(bytes(ucp.get_worker_address()))
        ep = await ucp.create_endpoint_from_worker_address(ucp.get_ucx_address_from_buffer(pipe.recv()))
        await ep.am_send(await asyncio.wait_for(ep.am_recv(), 20))
        pipe.recv()

    asyncio.run(main())


@pytest.mark.parametrize("n", [3, 1_000_000])
async def test_active_messages_by_address(n):
    here, there = mp.Pipe()
    process = mp.Process(target=answer_by_address, args=(there,))
    process.start()
    ep = await ucp.create_endpoint_from_worker_address(ucp.get_ucx_address_from_buffer(here.recv()))
    here.send(bytes(ucp.get_worker_address()))
    message = np.arange(n, dtype="u1")
    await ep.am_send(message)
    assert bytes(await asyncio.wait_for(ep.am_recv(), 20)) == message.tobytes()
    here.send("done")
    process.join(20)
    assert process.exitcode == 0
    ep.abort()


def address_of_the_dead(there):
    there.send(bytes(ucp.get_worker_address()))
    ucp.reset()


async def test_by_address_to_the_dead():
    here, there = mp.Pipe()
    process = mp.Process(target=address_of_the_dead, args=(there,))
    process.start()
    address = ucp.get_ucx_address_from_buffer(here.recv())
    process.join(20)
    with pytest.raises(ucp.exceptions.UCXError, match=r"Destination is unreachable|Endpoint timeout"):
        ep = await ucp.create_endpoint_from_worker_address(address)
        while True:
            ep._ep.raise_on_error()
            ucp.progress()
