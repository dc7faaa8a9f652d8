# UCX: both
"""The library may be closed by dlclose(), and the process end, while its threads are at work."""

from __future__ import annotations

import os
import subprocess
import sys
import unittest
from pathlib import Path

CHILD = """
import _ctypes, ctypes, os, sys, time

class WorkerOpts(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("mode", ctypes.c_uint32)]

def open_worker(library):
    context, worker = ctypes.c_uint64(), ctypes.c_uint64()
    opts = WorkerOpts(ctypes.sizeof(WorkerOpts), 2)  # HWS_PROGRESS_THREAD
    assert library.hws_context_open(None, ctypes.byref(context)) == 0
    assert library.hws_worker_open(context, ctypes.byref(opts), ctypes.byref(worker)) == 0

library = ctypes.CDLL(os.environ["HAWSER_LIBRARY"])
open_worker(library)
if "dlclose" in sys.argv:
    _ctypes.dlclose(library._handle)
    time.sleep(0.1)
"""


def child(*args: str) -> int:
    return subprocess.run([sys.executable, "-c", CHILD, *args], timeout=60, check=False).returncode


class Unload(unittest.TestCase):
    def test_the_threads_outlive_dlclose(self) -> None:
        for _ in range(5):
            self.assertEqual(child("dlclose"), 0)

    def test_ends_with_the_interpreter(self) -> None:
        for _ in range(5):
            self.assertEqual(child("end"), 0)


if __name__ == "__main__":
    library = Path(os.environ["HAWSER_LIBRARY"]).read_bytes()
    if b"__asan_init" in library or b"__tsan_init" in library:
        print("SKIP: a sanitizer's run time must be there before the library, and Python has none")
        sys.exit(77)
    unittest.main()
