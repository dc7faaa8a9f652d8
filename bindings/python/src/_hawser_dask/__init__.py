"""The hook by which `ucx://` in Dask belongs to Hawser without any configuration.

Dask loads every entry point of the group `dask.sizeof`, this one among them, in every process and
before `distributed.comm` exists. That moment is used to ask to be told when `distributed.comm` has
been imported; then hawser.dask decides whether it takes the scheme. Nothing else happens here, and
where Dask is not imported nothing happens at all.
"""

import sys
from importlib.machinery import PathFinder

NAME = "distributed.comm"


class _Finder:
    """Finds `distributed.comm` where it is, once, and adds a step to its loading."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(cls)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                _claim()

            spec.loader.exec_module = exec_module
        return spec


def _claim():
    from hawser.dask._owner import claim_ucx

    claim_ucx()


def register(sizeof):
    """Called by Dask with its sizeof(), for which there is nothing to register."""
    if NAME in sys.modules:
        _claim()
    elif _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
