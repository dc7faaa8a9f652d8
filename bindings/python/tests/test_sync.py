"""The blocking twin, with both ends in threads of one process. SANITIZED"""

import threading

import pytest
from conftest import run_script

import hawser
import hawser.sync


def run_threads(*functions):
    failures = []

    def guarded(function):
        try:
            function()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []


@pytest.mark.parametrize("shared", [True, False])
def test_every_call(context, shared):
    """Both threads on one worker, or on one each."""
    first = hawser.Worker(context, am_ids=[4])
    second = first if shared else hawser.Worker(context)
    with first, second, hawser.sync.listen(host="127.0.0.1", worker=first) as listener:

        def serve():
            with listener.accept(20) as ep:
                into = bytearray(3)
                assert ep.recv(into, 1) == 3 and into == b"abc"
                assert ep.recv(tag=2) == bytes(1_000_000)
                assert ep.stream_recv(into) == 3
                ep.send(b"go", 5)
                header, data = ep.recv_am(4, 20)
                assert (header, bytes(data)) == (b"h", b"am")
                ep.send(b"bye", 3)
                with pytest.raises(hawser.PeerClosedError):
                    ep.recv(into, 9)

        def dial():
            with hawser.sync.connect("127.0.0.1", listener.port, worker=second) as ep:
                ep.send(b"abc", 1)
                ep.send(bytes(1_000_000), 2)
                ep.stream_send(b"xyz")
                assert ep.recv(tag=5) == b"go"
                ep.send_am(b"am", 4, b"h")
                assert ep.recv(tag=3, timeout=20) == b"bye"
                ep.flush()
                with pytest.raises(hawser.TimedOutError):
                    ep.recv(bytearray(1), 7, timeout=0.05)
                assert ep.info()["peer_pid"] != 0

        run_threads(serve, dial)


def test_what_comes_after_a_timeout_is_there_for_the_next(context):
    with hawser.Worker(context, am_ids=[4]) as worker, hawser.sync.listen(host="127.0.0.1", worker=worker) as listener:
        with pytest.raises(TimeoutError):
            listener.accept(0.02)
        with hawser.sync.connect("127.0.0.1", listener.port, worker=worker) as client, listener.accept(20) as server:
            with pytest.raises(TimeoutError):
                server.recv_am(4, 0.02)
            with pytest.raises(TimeoutError):
                server.stream_recv(bytearray(3), timeout=0.02)
            with pytest.raises(TimeoutError):
                server.recv(tag=1, timeout=0.02)
            client.send_am(b"am", 4)
            client.stream_send(b"xyz")
            client.send(b"tag", 1)
            assert bytes(server.recv_am(4, 20)[1]) == b"am"
            into = bytearray(3)
            assert server.stream_recv(into, timeout=20) == 3 and into == b"xyz"
            assert server.recv(tag=1, timeout=20) == b"tag"


def test_default_workers():
    with hawser.sync.listen(host="127.0.0.1") as listener:

        def dial():
            with hawser.sync.connect("127.0.0.1", listener.port) as ep:
                for i in range(100):
                    ep.send(b"%d" % i, 1)
                    assert ep.recv(tag=2) == b"%d" % i

        thread = threading.Thread(target=dial)
        thread.start()
        with listener.accept(20) as ep:
            for _ in range(100):
                ep.send(ep.recv(tag=1), 2)
        thread.join(60)
        assert not thread.is_alive()


def test_explicit_listener():
    with hawser.Context() as context, hawser.Worker(context, progress="thread") as worker:
        with hawser.sync.listen(host="127.0.0.1", worker=worker, explicit=True) as listener:
            made = []

            def dial(n):
                for _ in range(n):
                    try:
                        made.append(hawser.sync.connect("127.0.0.1", listener.port, worker=worker, timeout=20))
                    except hawser.RejectedError as e:
                        made.append(e)

            thread = threading.Thread(target=dial, args=(2,))
            thread.start()
            request = listener.accept(20)
            assert isinstance(request, hawser.sync.Request) and request.info()
            server = request.accept()
            listener.accept(20).reject()
            thread.join()
            client, refused = made
            assert isinstance(refused, hawser.RejectedError)
            client.send(b"hello", 1)
            assert server.recv(tag=1) == b"hello"
            with pytest.raises(hawser.TimedOutError):
                listener.accept(0.01)
            client.close()
            server.close()


def test_iterating_a_listener_that_another_thread_closes():
    with hawser.Context() as context, hawser.Worker(context, progress="thread") as worker:
        listener = hawser.sync.listen(host="127.0.0.1", worker=worker)
        threading.Timer(0.1, listener.close).start()
        assert list(listener) == []


_DAEMON = """
import sys, threading
import hawser.sync

listener = hawser.sync.listen(host="127.0.0.1")
begun = threading.Event()
kept = []

def work():
    ep = hawser.sync.connect("127.0.0.1", listener.port)
    waits = {
        "recv": lambda: ep.recv(bytearray(1)),
        "recv of any length": ep.recv,
        "recv_am": ep.recv_am,
        "recv_multi": ep.recv_multi,
        "accept": hawser.sync.listen(host="127.0.0.1").accept,
        "send": lambda: ep.send(b"x"),
    }
    kept.extend((ep, waits))
    try:
        begun.set()
        while True:
            waits[sys.argv[1]]()
    finally:
        print("left")

threading.Thread(target=work, daemon=True).start()
ep = listener.accept()
begun.wait()  # without progress: the connect must not need it
"""


@pytest.mark.parametrize("call", ["recv", "recv of any length", "recv_am", "recv_multi", "accept", "send"])
def test_daemon_threads_end_with_python_without_a_word(call):
    """As those that read a socket; what they hold on to is let go, though."""
    code, output = run_script(_DAEMON, call)
    assert (code, output.removesuffix("left\n")) == (0, "")
