"""The name `ucp` for hawser.ucp: both names are the same modules."""

import importlib
import sys

_MODULES = (
    "_libs",
    "_libs.arr",
    "_libs.exceptions",
    "_libs.ucx_api",
    "_libs.utils",
    "_libs.utils_test",
    "_version",
    "benchmarks",
    "benchmarks.backends",
    "benchmarks.backends.base",
    "benchmarks.backends.ucp_async",
    "benchmarks.backends.ucp_core",
    "benchmarks.utils",
    "comm",
    "continuous_ucx_progress",
    "core",
    "exceptions",
    "utils",
)

for _name in _MODULES:
    sys.modules[f"ucp.{_name}"] = importlib.import_module(f"hawser.ucp.{_name}")
sys.modules["ucp"] = importlib.import_module("hawser.ucp")
