# UCX: both
# TIMEOUT: 120
"""The SWIG module for Python: exact numbers, exceptions, buffers that stay, and the GIL released where it waits."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import unittest
from collections.abc import Callable
from pathlib import Path

import swig_module
from bindgen import ROOT, read

hawser = swig_module.load()
from hawser._errors import BadIdError, HawserError, KindError, StaleError, TimedOutError  # noqa: E402

TOP = 2**64 - 1

#: Names with an underscore that the stable ABI has all the same.
STABLE = {"_Py_NoneStruct", "_Py_NotImplementedStruct", "_Py_TrueStruct", "_Py_Dealloc", "_Py_IncRef", "_Py_DecRef"}
STABLE |= {"_PyObject_New", "_Py_BuildValue_SizeT", "_PyObject_CallFunction_SizeT"}


class WithPair(unittest.TestCase):
    def setUp(self) -> None:
        self.pair = swig_module.Pair(hawser)

    def tearDown(self) -> None:
        self.pair.close()


class Messages(WithPair):
    def test_numbers_are_exact(self) -> None:
        tag, user = 2**63 + 2**53 + 1, TOP
        _, op = hawser.tag_recv(self.pair.server, bytearray(8), tag, TOP, {"queue": self.pair.queue, "user": user})
        hawser.tag_send(self.pair.client, b"12345", tag, {"queue": self.pair.queue})
        event = self.pair.take(lambda e: e["op"] == op)
        self.assertEqual((event["tag"], event["user"], event["length"], event["status"]), (tag, user, 5, 0))
        self.assertEqual(event["source"], self.pair.server)
        self.assertLess(op, 2**53)
        hawser.user_set(self.pair.server, TOP)
        self.assertEqual(hawser.user_get(self.pair.server), TOP)

    def test_a_buffer_stays_until_the_final_event(self) -> None:
        into, out = bytearray(5), bytearray(b"hello")
        _, receive = hawser.tag_recv(self.pair.server, into, 1, TOP, {"queue": self.pair.queue})
        with self.assertRaises(BufferError):
            into.append(0)
        before = sys.getrefcount(into)
        hawser.tag_send(self.pair.client, out, 1, {"queue": self.pair.queue})
        self.pair.take(lambda e: e["op"] == receive)
        self.assertEqual((bytes(into), sys.getrefcount(into)), (b"hello", before - 1))
        into.append(0)

    def test_cancel_gives_the_buffer_back_with_the_event(self) -> None:
        into = bytearray(5)
        _, op = hawser.tag_recv(self.pair.server, into, 1, TOP)
        with self.assertRaises(TimedOutError):
            hawser.wait(op, 0)
        hawser.cancel(op)
        with self.assertRaises(BufferError):
            into.append(0)
        event = hawser.wait(op, 10**10)
        self.assertEqual((event["status"], event["detail"]), (hawser.E_CANCELED, "cancelled"))
        into.append(0)

    def test_inline_completion_gives_the_event(self) -> None:
        options = {"queue": self.pair.queue, "flags": hawser.OP_INLINE, "user": 7}
        status, event = hawser.tag_send(self.pair.client, b"x", 1, options)
        self.assertEqual((status, event["kind"], event["length"]), (hawser.DONE, hawser.EVENT_TAG_SEND, 1))

    def test_wait_many_tells_what_ended_when_the_time_is_over(self) -> None:
        ops = [hawser.tag_recv(self.pair.server, bytearray(4), tag, TOP)[1] for tag in (1, 2)]
        hawser.tag_send(self.pair.client, b"abcd", 1, {"queue": self.pair.queue})
        status, left, events = hawser.wait_many(ops, hawser.WAIT_ALL, 10**8)
        while left[0] != 0:  # a slow machine
            status, left, events = hawser.wait_many(ops, hawser.WAIT_ALL, 10**8)
        self.assertEqual((status, left[1], events[0]["length"]), (hawser.E_TIMED_OUT, ops[1], 4))
        hawser.cancel(left[1])
        self.assertEqual(hawser.wait_many(left, hawser.WAIT_ALL, 10**10)[:2], (1, [0, 0]))

    def test_active_message(self) -> None:
        hawser.am_handler(self.pair.worker, 3, {"sink": {"queue": self.pair.queue}})
        hawser.am_send(self.pair.client, 3, b"head", b"data" * 1000, {"queue": self.pair.queue})
        event = self.pair.take(lambda e: e["kind"] == hawser.EVENT_AM)
        detail = event["detail"]
        self.assertEqual(
            (detail["header"], detail["data"], detail["endpoint"]), (b"head", b"data" * 1000, event["source"])
        )
        self.assertEqual(hawser.buffer_data(detail["buffer"]), b"data" * 1000)
        hawser.close(detail["buffer"])
        with self.assertRaises(StaleError):
            hawser.buffer_data(detail["buffer"])

    def test_multi_buffer_message(self) -> None:
        options = {"queue": self.pair.queue}
        hawser.multi_recv(self.pair.server, 9, TOP, {}, options)
        hawser.multi_recv(self.pair.server, 9, TOP, {"flags": hawser.MULTI_LIST}, options)
        hawser.multi_send(self.pair.client, 9, [b"abc", bytes(100_000), bytearray(b"z")], None, options)
        event = self.pair.take(lambda e: e["kind"] == hawser.EVENT_MULTI_RECV)
        self.assertEqual([s["base"] for s in event["detail"]["segments"]], [b"abc", bytes(100_000), b"z"])
        hawser.close(event["detail"]["buffer"])
        hawser.multi_send(self.pair.client, 9, [b"abc", b"q" * 100_000], None, options)
        event = self.pair.take(lambda e: e["kind"] == hawser.EVENT_MULTI_LIST)
        self.assertEqual([s["length"] for s in event["detail"]["segments"]], [3, 100_000])
        parts = [bytearray(3), bytearray(100_000)]
        hawser.multi_fetch(event["detail"]["buffer"], parts, options)
        with self.assertRaises(BufferError):
            parts[1].append(0)
        self.pair.take(lambda e: e["kind"] == hawser.EVENT_MULTI_RECV)
        self.assertEqual(parts, [b"abc", b"q" * 100_000])
        parts[1].append(0)

    def test_blobs(self) -> None:
        items = [{"key": 2**64 - 1, "data": b"one"}, {"key": 7, "data": bytes(10_000)}]
        blob = hawser.blob_pack(self.pair.worker, 0, items)
        self.assertEqual(hawser.address_query(blob)["items"], 2)
        self.assertEqual([hawser.blob_item_get(blob, i) for i in (0, 1)], items)
        self.assertGreater(len(hawser.worker_address(self.pair.worker, 0)), 16)

    def test_memory_stays_while_it_is_registered(self) -> None:
        pair = swig_module.Pair(hawser, hawser.FEATURE_RMA | hawser.FEATURE_TAG)
        target = bytearray(b"." * 64)
        memory = hawser.mem_register(pair.context, target)
        with self.assertRaises(BufferError):
            target.append(0)
        base = hawser.mem_query(memory)["base"]
        rkey = hawser.rkey_unpack(pair.client, hawser.rkey_pack(memory, 0), 0)
        hawser.put(rkey, base + 8, b"hello", {"queue": pair.queue})
        _, op = hawser.flush(pair.client, {"queue": pair.queue})
        pair.take(lambda e: e["op"] == op)
        self.assertEqual(target[8:13], b"hello")
        hawser.close_wait(memory, 10**10)
        target.append(0)
        pair.close()

    def test_texts_of_any_length(self) -> None:
        self.assertIn("UCP endpoint", hawser.describe(self.pair.client))
        self.assertEqual(hawser.endpoint_query(self.pair.client)["state"], hawser.STATE_OPEN)
        self.assertIn("127.0.0.1:", hawser.endpoint_query(self.pair.client)["peer_address"])


class Errors(WithPair):
    def test_exceptions(self) -> None:
        with self.assertRaises(KindError) as caught:
            hawser.worker_progress(self.pair.client)
        self.assertEqual(
            (caught.exception.code, caught.exception.name, caught.exception.id),
            (hawser.E_KIND, "KIND", self.pair.client),
        )
        self.assertIn("worker", caught.exception.text)
        self.assertIsInstance(caught.exception, TypeError)
        with self.assertRaises(BadIdError):
            hawser.kind(12345)

    def test_wrong_arguments(self) -> None:
        queue = {"queue": self.pair.queue}
        wrong: list[tuple[type[Exception], Callable[[], object]]] = [
            (TypeError, lambda: hawser.tag_send(self.pair.client, "text", 1, queue)),
            (BufferError, lambda: hawser.tag_recv(self.pair.client, b"constant", 1, TOP, queue)),
            (OverflowError, lambda: hawser.tag_send(self.pair.client, b"", -1, queue)),
            (OverflowError, lambda: hawser.tag_send(self.pair.client, b"", 2**64, queue)),
            (OverflowError, lambda: hawser.listen(self.pair.worker, None, 65536)),
            (OverflowError, lambda: hawser.worker_open(self.pair.context, {"mode": 2**32})),
            (TypeError, lambda: hawser.worker_open(self.pair.context, {"sink": {"callback": 1}})),
            (TypeError, lambda: hawser.worker_open(self.pair.context, {"no_such": 1})),
            (TypeError, lambda: hawser.worker_open(self.pair.context, 5)),
            (TypeError, lambda: hawser.kind(1.5)),
            (ValueError, lambda: hawser.tag_send(self.pair.client, b"", 1, {"flags": hawser.OP_DETACHED})),
            (ValueError, lambda: hawser.tag_send(self.pair.client, b"", 1, {"flags": hawser.OP_IOV})),
        ]
        for error, call in wrong:
            with self.assertRaises(error):
                call()
        self.assertEqual(hawser.stats_get(self.pair.context)["ops_pending"], 0)

    def test_options(self) -> None:
        config = {"RNDV_THRESH": "1234"}
        context = hawser.context_open({"name": "a name", "config": config, "flags": hawser.CONTEXT_NO_SHARED_MEMORY})
        hawser.close_wait(context, 10**10)
        context = hawser.context_open({"config": ["RNDV_THRESH", "1234"]})
        mask = [1, 2**64 - 1]
        worker = hawser.worker_open(context, {"mode": hawser.PROGRESS_BLOCKING, "cpu_mask": mask, "name": "w"})
        self.assertEqual(hawser.kind(worker), hawser.KIND_WORKER)
        hawser.close_wait(context, 10**10)
        with self.assertRaises(HawserError):
            hawser.context_open({"config": {"RNDV_THRESH": "not a number"}})


class Gil(WithPair):
    def wrappers(self) -> dict[str, str]:
        text = (Path(hawser.__file__).parents[3] / "abi" / "hawser_swig_python_wrap.c").read_text()
        return dict(re.findall(r"\n(?:SWIGINTERN )?PyObject \*_wrap_(\w+)\(PyObject \*self(.*?)\n}\n", text, re.DOTALL))

    def test_released_exactly_on_blocking_calls(self) -> None:
        """What the generated C does, function by function, against the description."""
        wrappers = self.wrappers()
        checked = 0
        for f in read((ROOT / "include" / "hawser.h").read_text()).functions:
            name = f.name.removeprefix("hws_")
            if name in wrappers:
                self.assertEqual("SWIG_PYTHON_THREAD_BEGIN_ALLOW" in wrappers[name], f.blocking, name)
                checked += 1
        self.assertGreater(checked, 40)

    def ran_beside(self, call: Callable[[], object]) -> bool:
        """Whether another thread gets to run while this one only makes the same call again and again."""
        gate, ran = threading.Event(), threading.Event()

        def run() -> None:
            gate.wait()
            ran.set()

        thread = threading.Thread(target=run)
        thread.start()
        # Longer than the test: only who releases the GIL by himself lets the thread run.
        sys.setswitchinterval(1000)
        try:
            gate.set()
            for _ in range(100):
                call()
            return ran.is_set()
        finally:
            sys.setswitchinterval(0.005)
            thread.join()

    def test_others_run_during_a_wait_only(self) -> None:
        self.assertTrue(self.ran_beside(lambda: hawser.worker_wait(self.pair.worker, 10**7)))
        self.assertFalse(self.ran_beside(lambda: hawser.worker_progress(self.pair.worker)))


class Module(unittest.TestCase):
    def test_stable_abi(self) -> None:
        """Only symbols of the limited API: the module serves every later Python."""
        library = Path(hawser.__file__).parent / "__swig.abi3.so"
        used = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True)
        private = re.findall(r"\b_Py\w+", used.stdout)
        self.assertLessEqual(set(private), STABLE)

    def test_stub_names_what_the_module_has(self) -> None:
        stub = (ROOT / "bindings" / "python" / "src" / "hawser" / "_swig.pyi").read_text()
        for name in re.findall(r"^def (\w+)", stub, re.MULTILINE) + re.findall(r"^([A-Z]\w+): int", stub, re.MULTILINE):
            self.assertTrue(hasattr(hawser, name), name)


if __name__ == "__main__":
    unittest.main()
