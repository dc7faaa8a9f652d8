"""Transposes a matrix that is spread over processes: all_to_all.py [PROCESSES [SIZE]].

Every process has some rows. It sends each of the others the part of them that belongs to the other's
columns, straight from its array, and receives straight into its own.
"""

import asyncio
import multiprocessing
import sys

import numpy as np

import hawser


async def connect_all(rank, pipe, count):
    """Endpoints to all others by rank: each connects to those before it."""
    peers = {}
    async with hawser.listen(host="127.0.0.1") as listener:
        pipe.send(listener.port)
        ports = await asyncio.to_thread(pipe.recv)
        for other in range(rank):
            peers[other] = await hawser.connect("127.0.0.1", ports[other])
            await peers[other].send(bytes([rank]))
        while len(peers) < count - 1:
            ep = await listener.accept()
            peers[(await ep.recv())[0]] = ep
    return peers


async def transpose(rank, pipe, count, size):
    peers = await connect_all(rank, pipe, count)
    rows = np.arange(size * size, dtype=np.int64).reshape(size, size)[rank * size // count : (rank + 1) * size // count]
    edges = [r * size // count for r in range(count + 1)]
    blocks = [np.ascontiguousarray(rows[:, edges[r] : edges[r + 1]].T) for r in range(count)]
    parts = [np.empty((len(rows), edges[r + 1] - edges[r]), dtype=rows.dtype) for r in range(count)]
    parts[rank][:] = blocks[rank]
    await asyncio.gather(
        *(peers[r].recv(parts[r]) for r in peers),
        *(peers[r].send(blocks[r]) for r in peers),
    )
    whole = np.hstack(parts)
    assert (whole == np.arange(size * size).reshape(size, size).T[edges[rank] : edges[rank + 1]]).all()
    await asyncio.gather(*(ep.flush() for ep in peers.values()))
    pipe.send(int(whole.sum()))
    await asyncio.to_thread(pipe.recv)
    for ep in peers.values():
        await ep.close()


def work(*args):
    asyncio.run(transpose(*args))


def main(count=3, size=300):
    mp = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for rank in range(count):
        here, there = mp.Pipe()
        pipes.append(here)
        processes.append(mp.Process(target=work, args=(rank, there, count, size)))
        processes[-1].start()
    ports = [pipe.recv() for pipe in pipes]
    for pipe in pipes:
        pipe.send(ports)
    total = sum(pipe.recv() for pipe in pipes)
    for pipe in pipes:
        pipe.send("end")
    for process in processes:
        process.join()
    assert total == size * size * (size * size - 1) // 2
    print(f"{size} x {size} transposed by {count} processes")
    return max(process.exitcode for process in processes)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
