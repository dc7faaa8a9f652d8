"""The name `ucxx` for hawser.ucxx, by which Dask-CUDA lists UCX's transports: both names are the same modules."""

import importlib
import sys

_MODULES = (
    "_cuda_context",
    "_lib",
    "_lib.arr",
    "_lib.libucxx",
    "_lib_async",
    "_lib_async.application_context",
    "_lib_async.continuous_ucx_progress",
    "_lib_async.endpoint",
    "_lib_async.exchange_peer_info",
    "_lib_async.listener",
    "_lib_async.notifier_thread",
    "_lib_async.utils",
    "_lib_async.utils_test",
    "_version",
    "core",
    "exceptions",
    "testing",
    "types",
    "utils",
)
# These import packages that not every program has: pytest, which who asks for the key runs in, and numpy.
_WITH_OTHERS = {"_lib_async.pytest_stash_keys": "pytest"}

_package = importlib.import_module("hawser.ucxx")
for _name in (*_MODULES, *(name for name, other in _WITH_OTHERS.items() if other in sys.modules)):
    sys.modules[f"ucxx.{_name}"] = importlib.import_module(f"hawser.ucxx.{_name}")
sys.modules["ucxx"] = _package
