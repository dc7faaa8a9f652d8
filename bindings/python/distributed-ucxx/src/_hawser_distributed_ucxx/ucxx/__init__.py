"""The name `ucxx` for hawser.ucxx, by which Dask-CUDA lists UCX's transports: both names are the same modules."""

import importlib
import sys

_package = importlib.import_module("hawser.ucxx")
for _name in [_name for _name in sys.modules if _name.startswith("hawser.ucxx.")]:
    sys.modules[_name.removeprefix("hawser.")] = sys.modules[_name]
sys.modules["ucxx"] = _package
