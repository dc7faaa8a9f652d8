"""Closing, warnings, leaks, several loops and threads, fork, signals, the end of the interpreter. SANITIZED"""

import asyncio
import contextlib
import gc
import os
import signal
import threading
import time

import pytest
import uvloop
from conftest import run_script
from echo_support import converse, echo, run_in_threads

import hawser

ECHO = """
import asyncio, logging, sys, hawser
logging.getLogger("asyncio").setLevel(logging.ERROR)  # debug mode tells of steps that a busy machine makes slow

async def echo(count=3, close=True):
    listener = hawser.listen(host="127.0.0.1")
    client = await hawser.connect("127.0.0.1", listener.port)
    server = await listener.accept()
    for i in range(count):
        await client.send(b"%d" % i, 1)
        assert await server.recv(tag=1) == b"%d" % i
    if close:
        for thing in (client, server, listener):
            await thing.close()
    return listener, client, server
"""


def test_quiet_end():
    code, output = run_script(ECHO + "asyncio.run(echo())")
    assert (code, output) == (0, "")


def test_everything_closed():
    code, output = run_script(
        ECHO
        + """
async def main():
    async with hawser.Worker(hawser.Context()) as worker:
        pass
    assert worker.closed
    worker.context.close()
    await echo()
    await hawser.default_worker().close()
asyncio.run(main())
"""
    )
    assert (code, output) == (0, "")


@pytest.mark.parametrize("how", ["asyncio", "sync"])
def test_a_context_closes_what_is_on_it(how):
    """At once, without a warning; the next default worker is another context's."""
    code, output = run_script(
        f"""
import asyncio, gc, logging, hawser, hawser.sync
logging.getLogger("asyncio").setLevel(logging.ERROR)
def closed(*things):
    print([thing.closed for thing in things], [repr(thing).split()[-1] for thing in things])
async def main():
    for _ in range(2):
        listener = hawser.listen(host="127.0.0.1")
        client = await hawser.connect("127.0.0.1", listener.port)
        server, worker = await listener.accept(), hawser.default_worker()
        worker.context.close()
        closed(worker, listener, client, server)
        assert not client.connected
def sync():
    for _ in range(2):
        listener = hawser.sync.listen(host="127.0.0.1")
        client = hawser.sync.connect("127.0.0.1", listener.port)
        server, worker = listener.accept(), hawser.sync.default_worker()
        worker.context.close()
        closed(worker, listener.async_listener, client.async_endpoint, server.async_endpoint)
sync() if {how == "sync"} else asyncio.run(main())
gc.collect()
""",
    )
    once = f"{[True] * 4} {['closed>'] * 4}\n"
    assert (code, output) == (0, once * 2)


@pytest.mark.parametrize("how", ["loops", "threads"])
def test_default_workers_go_with_their_users(how):
    """Each loop, and each thread with hawser.sync, has one; those of closed loops and ended threads are closed."""
    code, output = run_script(
        ECHO
        + f"""
import os, threading, time, hawser.sync

def talk():
    with hawser.sync.listen() as listener, hawser.sync.connect("127.0.0.1", listener.port) as client:
        with listener.accept() as server:
            client.send(b"x", 1)
            assert server.recv(tag=1) == b"x"

def once():
    if {how == "loops"}:
        asyncio.run(echo())
    else:
        thread = threading.Thread(target=talk)
        thread.start()
        thread.join()

def few():
    for _ in range(100):
        if len(os.listdir("/proc/self/fd")) <= first + 30:
            return True
        time.sleep(0.1)

once()
first = len(os.listdir("/proc/self/fd"))
for _ in range(8):
    once()
assert few(), (first, len(os.listdir("/proc/self/fd")))
"""
    )
    assert (code, output) == (0, "")


def test_unclosed_warns():
    code, output = run_script(
        ECHO
        + """
import gc, warnings
async def main():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        things = await echo(close=False)
        del things
        gc.collect()
        await asyncio.sleep(0.1)
    print(sorted(str(w.message).split()[1] for w in caught if w.category is ResourceWarning))
asyncio.run(main())
"""
    )
    assert code == 0, output
    assert output == "['endpoint', 'endpoint', 'listener']\n"


def test_unclosed_worker_warns():
    code, output = run_script(
        """
import gc, warnings, hawser, time
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    context = hawser.Context()
    worker = hawser.Worker(context)
    receive = worker.recv(bytearray(3), 1)
    start = time.monotonic()
    del worker
    gc.collect()
    assert time.monotonic() - start < 1
print([str(w.message).split()[1] for w in caught])
caught.clear()  # a warning holds what it is about
for _ in range(500):
    time.sleep(0.01)
    if receive.done():
        break
assert receive.done()
context.close()
"""
    )
    assert (code, output) == (0, "['worker']\n")


def test_end_with_operations_pending():
    code, output = run_script(
        ECHO
        + """
async def main():
    listener, client, server = await echo(close=False)
    global kept
    kept = [server.recv(bytearray(10), 5), client.send(bytes(1000000), 9, sync=True), listener, client, server]
asyncio.run(main())
""",
    )
    assert code == 0, output


def test_loop_closed_while_waiting(context):
    worker = hawser.Worker(context)
    receives = []

    async def start():
        task = asyncio.create_task(wait())
        await asyncio.sleep(0.01)
        task.cancel()

    async def wait():
        receives.append(worker.recv(bytearray(1), 1))
        await receives[0]

    asyncio.run(start())

    async def again():
        receive = worker.recv(bytearray(1), 2)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(receive, 0.02)

    asyncio.run(again())
    uvloop.run(again())
    worker.close_wait()
    assert worker.closed


def test_loop_per_thread(context):
    """Loops of several threads, of both kinds, each with a worker; all talk to one listener."""

    async def serve(ports, done):
        async with hawser.Worker(context) as worker, hawser.listen(host="127.0.0.1", worker=worker) as listener:
            ports.append(listener.port)
            tasks = []
            while not done.is_set():
                try:
                    endpoint = await asyncio.wait_for(listener.accept(), 0.05)
                except TimeoutError:
                    continue
                tasks.append(asyncio.create_task(echo(endpoint)))
            await asyncio.gather(*tasks)

    def client(number):
        runner = (asyncio.run, uvloop.run)[number % 2]
        return lambda port: runner(converse(context, port, number))

    run_in_threads(lambda ports, done: asyncio.run(serve(ports, done)), [client(i) for i in range(4)])


def test_two_loops_share_a_worker(context):
    """An operation that another thread's progress ends wakes the loop that waits for it."""
    with hawser.Worker(context) as worker:
        results = []

        async def waiter(tag, loops):
            loops.append(1)
            results.append(await worker.recv(bytearray(4), tag))

        loops = []
        threads = [threading.Thread(target=lambda t=t: asyncio.run(waiter(t, loops))) for t in (1, 2)]
        for thread in threads:
            thread.start()

        async def send():
            async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
                async with hawser.connect("127.0.0.1", listener.port, worker=worker) as ep:
                    server = await listener.accept()
                    await asyncio.sleep(0.1)
                    await ep.send(b"1234", 1)
                    await asyncio.sleep(0.1)
                    await ep.send(b"1234", 2)
                    for thread in threads:
                        await asyncio.to_thread(thread.join, 20)
                    await server.close()

        asyncio.run(send())
        assert results == [4, 4]


@pytest.mark.parametrize("progress", ["thread", "thread-polling", "manual"])
async def test_modes(context, progress):
    async with hawser.Worker(context, progress=progress) as worker:
        async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
            async with hawser.connect("127.0.0.1", listener.port, worker=worker) as client:
                server = await listener.accept()
                receive = asyncio.ensure_future(server.recv(bytearray(3), 1))
                await asyncio.sleep(0.05)
                await client.send(b"abc", 1)
                assert await receive == 3
                sending = client.send(bytes(3_000_000), 2)
                assert len(await server.recv(tag=2)) == 3_000_000
                await sending
                await server.close()


def test_fork():
    code, output = run_script(
        """
import os, hawser
context = hawser.Context()
worker = hawser.Worker(context)
pid = os.fork()
if pid == 0:
    try:
        worker.progress()
    except hawser.ForkedError:
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
worker.close_wait()
context.close()
"""
    )
    assert (code, output) == (0, "")


def count_fds():
    return len(os.listdir("/proc/self/fd"))


async def test_connections_leak_nothing(context):
    async def some(worker):
        async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
            for _ in range(5):
                async with (
                    hawser.connect("127.0.0.1", listener.port, worker=worker) as client,
                    await listener.accept() as server,
                ):
                    await client.send(b"x", 1)
                    await server.recv(tag=1)

    async def round():
        async with hawser.Worker(context) as worker:
            await some(worker)
        assert not worker._objects or (gc.collect() and not worker._objects)

    await round()
    gc.collect()
    fds, objects = count_fds(), len(gc.get_objects())
    for _ in range(3):
        await round()
    gc.collect()
    assert count_fds() <= fds + 2
    assert len(gc.get_objects()) <= objects + 200


async def test_idle_receives_cost_nothing(pair):
    client, server = pair
    receives = [asyncio.ensure_future(server.recv(bytearray(1), i)) for i in range(1000)]
    await asyncio.sleep(0.5)
    before = time.process_time()
    await asyncio.sleep(1)
    assert time.process_time() - before < 0.2
    for receive in receives:
        receive.cancel()


def test_signal_module_is_left_alone():
    handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGSEGV, signal.SIGTERM)}
    hawser.library()
    with hawser.Context() as context, hawser.Worker(context):
        assert {s: signal.getsignal(s) for s in handlers} == handlers


async def test_what_is_closed_needs_no_other_holder():
    """The operation of a close ends although nobody holds what is closed."""
    listener = hawser.listen(host="127.0.0.1")
    async with asyncio.timeout(20):
        accepting = listener.accept()
        await (await hawser.connect("127.0.0.1", listener.port)).close()
        await (await accepting).close()
        closing = listener.close()
        del listener
        await closing


_LOOPS_OF_DAEMONS = """
import asyncio, hawser, threading, time

async def main():
    listener = hawser.listen(host="127.0.0.1")
    client, server = await asyncio.gather(hawser.connect("127.0.0.1", listener.port), listener.accept())
    busy.release()
    while True:
        receive = server.recv(bytearray(1000), 1)
        await client.send(bytes(1000), 1)
        await receive

threading.excepthook = lambda args: None  # that their worker was closed
busy = threading.Semaphore(0)
for _ in range(4):
    threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
for _ in range(4):
    busy.acquire()
time.sleep(0.05)
"""


@pytest.mark.parametrize("attempt", range(8))
def test_exit_while_loops_of_daemon_threads_run(attempt):
    code, output = run_script(_LOOPS_OF_DAEMONS)
    assert code == 0, output


async def _talk(worker):
    async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
        accepting = asyncio.ensure_future(listener.accept())
        async with hawser.connect("127.0.0.1", listener.port, worker=worker) as client, await accepting as server:
            received = asyncio.ensure_future(server.recv(tag=1, timeout=20))
            await asyncio.sleep(0.01)
            await client.send(b"x", 1)
            assert await received == b"x"


def test_more_loops_than_the_kernel_lets_watch_a_socket(context):
    """Each in a thread of its own, all on one worker."""
    stop = threading.Event()

    async def main(worker, done):
        await _talk(worker)
        done.set()
        while not stop.is_set():
            await asyncio.sleep(0.1)

    with hawser.Worker(context) as worker:
        threads = []
        for _ in range(70):
            done = threading.Event()
            threads.append(threading.Thread(target=lambda done=done: asyncio.run(main(worker, done))))
            threads[-1].start()
            assert done.wait(30)
        stop.set()
        for thread in threads:
            thread.join()


def _blocked(tasks):
    """The signals that each of these threads blocks."""
    masks = []
    for task in tasks:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/self/task/{task}/status") as status:
            masks.append(int(next(line for line in status if line.startswith("SigBlk:")).split()[1], 16))
    return masks


async def _watch(worker):
    worker._watch()


def test_threads_of_hawser_take_no_signals_but_those_of_their_faults(context):
    """A thread that blocks SIGSEGV ends the process with no word of faulthandler's."""
    faults = sum(1 << (number - 1) for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL))
    with contextlib.ExitStack() as stack:
        before = set(os.listdir("/proc/self/task"))
        worker = stack.enter_context(hawser.Worker(context, standby=True))
        stack.enter_context(hawser.Worker(context, progress="thread"))
        for _ in range(12):  # more than look at the worker themselves: a thread relays
            loop = asyncio.new_event_loop()
            stack.callback(loop.close)
            loop.run_until_complete(_watch(worker))
        quiet, deadline = [faults], time.monotonic() + 10
        # A thread that has just begun has all of them blocked.
        while any(mask & faults for mask in quiet) and time.monotonic() < deadline:
            tasks = set(os.listdir("/proc/self/task")) - before
            quiet = [mask for mask in _blocked(tasks) if mask & 1 << (signal.SIGTERM - 1)]  # UCX's threads take all
        assert len(quiet) >= 3 and not any(mask & faults for mask in quiet)


def test_loops_that_stand_still_hold_up_no_other(context):
    with hawser.Worker(context) as worker:
        loops = [asyncio.new_event_loop() for _ in range(12)]
        for loop in loops:
            loop.run_until_complete(_talk(worker))
        for loop in loops:
            loop.close()


def test_a_view_outlives_its_loop():
    """A later loop's default worker has that of an earlier loop closed, with all memory of the library on it."""

    async def fetch():
        async with hawser.listen(host="127.0.0.1") as listener:
            async with hawser.connect("127.0.0.1", listener.port) as client, await listener.accept() as server:
                await client.send_am(b"a" * 8192)
                _, data = await server.recv_am()
                return memoryview(data)

    def close_others():
        asyncio.run(fetch()).release()
        for thread in threading.enumerate():
            if thread.name == "hawser-close":
                thread.join()

    view = asyncio.run(fetch())
    workers = len(hawser._defaults._defaults)
    close_others()
    assert bytes(view) == b"a" * 8192
    view.release()
    close_others()
    assert len(hawser._defaults._defaults) <= workers


async def test_another_loop_may_not_await_it(pair):
    """And who may goes on."""
    client, server = pair
    receiving = server.recv(bytearray(8), 1)

    async def wait():
        return await receiving

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0.01)

    def elsewhere():
        with pytest.raises(RuntimeError):
            asyncio.run(wait())

    await asyncio.get_running_loop().run_in_executor(None, elsewhere)
    await client.send(b"hello", 1)
    assert await asyncio.wait_for(waiting, 20) == 5


VIEWED = """
import asyncio, gc, os, time, warnings, hawser
warnings.simplefilter("ignore", ResourceWarning)

async def receive(size):
    worker = hawser.Worker(hawser.Context(), am_ids=[1])
    async with hawser.listen(host="127.0.0.1", worker=worker) as listener:
        client = await hawser.connect("127.0.0.1", listener.port, worker=worker)
        server = await listener.accept()
    sending = client.send_am(bytes([7]) * size, 1)
    data = (await server.recv_am(1))[1]
    await sending
    return worker.id, memoryview(data)

worker, view = asyncio.run(receive(8 << 20))
gc.collect()
time.sleep(0.3)  # a worker that nobody has closes on a thread of its own
assert view == bytes([7]) * (8 << 20)
assert hawser._core.kind(worker) > 0
del view
gc.collect()
end = time.monotonic() + 10
while True:
    try:
        hawser._core.kind(worker)
    except hawser.HawserError:
        break
    assert time.monotonic() < end, "the worker lives on"
    time.sleep(0.01)
"""


def test_a_view_of_received_memory_keeps_its_worker():
    assert run_script(VIEWED) == (0, "")
