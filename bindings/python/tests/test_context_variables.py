"""Context variables (contextvars) of callbacks: those of who asked for them, not of whoever makes progress."""

import asyncio
import contextvars
import time

import hawser

WHO = contextvars.ContextVar("WHO", default="nobody")


def within(who, call, *args):
    context = contextvars.copy_context()
    context.run(WHO.set, who)
    return context.run(call, *args)


def test_a_peer_comes_in_the_context_of_the_listener():
    """Progress is made by hand, under another name."""
    seen = []

    def arrived(endpoint):
        seen.append((WHO.get(), endpoint))
        WHO.set("a peer")

    with hawser.Context() as context, hawser.Worker(context) as worker:
        with within("listener", lambda: hawser.listen(0, "127.0.0.1", worker=worker, on_peer=arrived)) as listener:
            calls = [hawser.connect("127.0.0.1", listener.port, worker=worker) for _ in range(2)]
            deadline = time.monotonic() + 20
            while len(seen) < 2 or not all(call.operation.done() for call in calls):
                assert time.monotonic() < deadline
                within("progress", worker.progress)
            assert [who for who, _ in seen] == ["listener"] * 2
            for end in (*(call.endpoint for call in calls), *(endpoint for _, endpoint in seen)):
                end.abort()


async def test_a_task_of_a_peer_has_the_context_of_the_listener():
    """Also where the loop was first used, and the peer called, under another name."""
    seen = asyncio.get_running_loop().create_future()

    async def handle(endpoint):
        seen.set_result(WHO.get())
        await endpoint.close()

    tasks = set()

    async def call():
        await (await hawser.connect("127.0.0.1", listener.port)).close()

    async def client():
        WHO.set("client")
        await call()

    listener = within(
        "listener",
        lambda: hawser.listen(0, "127.0.0.1", on_peer=lambda e: tasks.add(asyncio.ensure_future(handle(e)))),
    )
    async with listener:
        await asyncio.gather(client(), seen)
    assert seen.result() == "listener"
    await asyncio.gather(*tasks)
