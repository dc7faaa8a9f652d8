"""Work is handed to whoever asks for it: producer_consumer.py [CONSUMERS [ITEMS]].

A consumer asks with as many credits as it is willing to hold; the producer never sends more. Items and
results are Python objects; the memory of their arrays is not copied.
"""

import asyncio
import multiprocessing
import sys

import hawser

CREDITS = 4
ASK, ITEM, RESULT = 1, 2, 3


async def produce(items, consumers, told):
    todo = iter(range(items))
    results = {}

    async def feed(ep):
        async with ep:
            sent = 0
            while (await ep.recv(tag=ASK))[0]:
                item = next(todo, None)
                await ep.send_obj(
                    None if item is None else {"item": item, "data": bytearray([item % 256]) * 1000}, ITEM
                )
                if item is None:
                    break
                sent += 1
            for _ in range(sent):
                item, answer = await ep.recv_obj(RESULT)
                results[item] = answer
            return sent

    async with hawser.listen(host="127.0.0.1") as listener:
        told(listener.port)
        shares = await asyncio.gather(*[feed(await listener.accept()) for _ in range(consumers)])
    assert results == {item: item % 256 * 1000 for item in range(items)}
    return shares


async def consume(port):
    async with hawser.connect("127.0.0.1", port) as ep:
        for _ in range(CREDITS):
            await ep.send(b"\1", ASK)
        results = []
        while (work := await ep.recv_obj(ITEM)) is not None:
            results.append((work["item"], sum(work["data"])))
            await ep.send(b"\1", ASK)
        for result in results:
            await ep.send_obj(result, RESULT)


def consumer(port):
    asyncio.run(consume(port))


def main(consumers=2, items=100):
    mp = multiprocessing.get_context("spawn")
    processes = []

    def told(port):
        for _ in range(consumers):
            processes.append(mp.Process(target=consumer, args=(port,)))
            processes[-1].start()

    shares = asyncio.run(produce(items, consumers, told))
    for process in processes:
        process.join()
    print(f"{items} items: {sum(shares)} done by {consumers} consumers")
    return max(process.exitcode for process in processes)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
