"""Weak references to what the extension makes. SANITIZED"""

import asyncio
import os
import weakref

import hawser

REUSED = not os.environ.get("HAWSER_SANITIZE")  # sanitizers see the end of each operation's memory


async def test_an_operation_that_has_ended(pair):
    """Its memory is the next operation's: references to the one before do not come to life again."""
    client, server = pair
    gone = []
    for n in range(1, 5):
        operation = server.recv(bytearray(3))
        address = id(operation)
        ref = weakref.ref(operation, gone.append)
        assert ref() is operation and weakref.ref(operation) is not ref
        await client.send(b"abc")
        assert await operation == 3
        del operation
        assert ref() is None and len(gone) == n and gone[-1] is ref
        again = server.recv(bytearray(3))
        assert (id(again) == address) == REUSED and all(old() is None for old in gone)
        await client.send(b"abc")
        await again
        del again


async def test_an_operation_that_goes_on(pair):
    """Nobody else needs to hold it until it has ended."""
    client, server = pair
    waiting = weakref.WeakSet()
    into = bytearray(3)
    operation = server.recv(into)
    waiting.add(operation)
    del operation
    assert len(waiting) == 1
    await client.send(b"abc")
    async with asyncio.timeout(20):
        while waiting:
            await asyncio.sleep(0)
    assert into == b"abc"


async def test_a_callback_that_makes_operations(pair):
    client, server = pair
    made = []
    operation = server.recv(bytearray(3))
    ref = weakref.ref(operation, lambda _: made.append((ref(), server.recv(bytearray(3)))))
    await client.send(b"abc")
    await operation
    del operation
    ((nothing, again),) = made
    assert nothing is None
    await client.send(b"abc")
    assert await again == 3


async def test_what_was_received(pair):
    client, server = pair

    async def found(look):
        async with asyncio.timeout(20):
            while (thing := look()) is None:
                server.worker.progress()
                await asyncio.sleep(0)
        return thing

    await client.send(b"abc")
    await client.send_am(b"abc")
    await client.send_multi([b"a", b"bc"])
    for thing in (
        await found(server.probe),
        await found(server.take),
        (await server.recv_am())[1],
        await server.recv_multi(),
    ):
        ref = weakref.ref(thing)
        assert ref() is thing
        if isinstance(thing, hawser.Message):
            thing.drop()
    del thing
    assert ref() is None
