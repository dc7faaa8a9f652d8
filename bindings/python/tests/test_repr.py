"""What objects say of themselves, while they are in use and afterwards. SANITIZED"""

import re

import pytest

import hawser
import hawser.sync


@pytest.fixture
def context():
    with hawser.Context(features=("tag", "am", "rma")) as context:
        yield context


def said(thing):
    return re.sub("0x[0-9a-f]+", "ID", repr(thing))


async def test_connections(context):
    async with hawser.Worker(context) as worker:
        listener = hawser.listen(host="127.0.0.1", worker=worker, explicit=True)
        dialled = hawser.connect("127.0.0.1", listener.port, worker=worker)
        assert said(dialled) == "<hawser.Connecting ID pending>"
        request = await listener.accept()
        assert said(request) == "<hawser.Request ID>"
        server, client = await request.accept(), await dialled
        assert said(dialled) == "<hawser.Connecting ID ended>"
        for thing in (server, client, listener):
            assert said(thing).endswith(" ID open>")
            closing = thing.close()
            assert said(thing).endswith(" ID closing>")
            await closing
            assert said(thing).endswith(" ID closed>")
    assert said(worker) == "<hawser.Worker ID closed>" and said(context) == "<hawser.Context ID open>"
    context.close()
    assert said(context) == "<hawser.Context ID closed>"


async def test_messages_and_memory(context):
    async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
        dialled = hawser.connect("127.0.0.1", listener.port, worker=worker)
        async with dialled as client, await listener.accept() as server:
            await client.send_am(b"abc")
            assert said((await server.recv_am())[1]) == "<hawser.Buffer of 3 bytes>"
            await client.send_multi([b"1", b"23"])
            assert said(await server.recv_multi()) == "<hawser.Segments of 2 buffers>"
            large = client.send_multi([bytes(1 << 20)])
            segments = await server.recv_multi()
            assert said(segments) == "<hawser.Segments of 1 buffers, pending>"
            await segments.fetch([bytearray(1 << 20)])
            await large
            memory = context.mem_register(bytearray(8))
            key = client.rkey_unpack(memory.rkey_pack())
            plan = client.plan([("put", key, 0, b"abc")])
            things = {plan: "Plan of 1 transfers", key: "RemoteKey of 8 bytes", memory: "RegisteredMemory of 8 bytes"}
            for thing, text in things.items():
                assert said(thing) == f"<hawser.{text}>"
                thing.close()
                assert said(thing) == f"<hawser.{text}, closed>"


def test_blocking_twins(context):
    with hawser.Worker(context) as worker:
        listener = hawser.sync.listen(host="127.0.0.1", worker=worker)
        client = hawser.sync.connect("127.0.0.1", listener.port, worker=worker)
        for thing, name in ((listener.accept(), "Endpoint"), (client, "Endpoint"), (listener, "Listener")):
            assert said(thing) == f"<hawser.sync.{name} ID open>" and not thing.closed
            thing.close()
            assert said(thing) == f"<hawser.sync.{name} ID closed>" and thing.closed
