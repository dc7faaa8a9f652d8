#!/usr/bin/env python3
"""What a call of the C library costs from Python, by each way to make it: JSON with ns per call of every round.

    .venv/bin/python bench/python/calls.py [rounds] [calls]

hws_kind() does next to nothing, so what is measured is the way there and back: the handwritten extension, the module
made by SWIG, ctypes, and cffi (ABI mode) if it is installed. The ways take turns within a round.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import hawser
from hawser import _core, _swig

LIBRARY = str(Path(hawser.__file__).parent / "lib" / "libhawser.so.0")

Kind = Callable[[int], int]


def by_ctypes() -> Kind:
    function = ctypes.CDLL(LIBRARY).hws_kind
    function.argtypes, function.restype = [ctypes.c_uint64], ctypes.c_int32
    found: Kind = function
    return found


def by_cffi() -> Kind | None:
    try:
        ffi = importlib.import_module("cffi").FFI()
    except ImportError:
        return None
    ffi.cdef("int32_t hws_kind(uint64_t id);")
    found: Kind = ffi.dlopen(LIBRARY).hws_kind
    return found


def ns_per_call(kind: Kind, id: int, calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        kind(id)
    return (time.perf_counter_ns() - start) / calls


def main(rounds: int = 5, calls: int = 1_000_000) -> None:
    ways: dict[str, Kind | None] = {
        "extension": _core.kind,
        "swig": _swig.kind,
        "ctypes": by_ctypes(),
        "cffi": by_cffi(),
    }
    here = {name: kind for name, kind in ways.items() if kind is not None}
    queue = _swig.queue_open()
    for kind in here.values():
        assert kind(queue) == _swig.KIND_QUEUE
        ns_per_call(kind, queue, calls // 10)
    found = [{name: ns_per_call(kind, queue, calls) for name, kind in here.items()} for _ in range(rounds)]
    _swig.close(queue)
    print(json.dumps({"rounds": found}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
