"""The hook by which `ucx://` in Dask belongs to Hawser without any configuration.

Dask loads every entry point of the group `dask.sizeof`, this one among them, in every process, at
the latest while `distributed.comm` is imported. That moment is used to ask to be told when its
schemes are registered; then hawser.dask decides whether it takes `ucx://`. Nothing else happens
here, and where Dask is not imported nothing happens at all.
"""

import sys

COMM = "distributed.comm"
# What distributed imports when distributed.comm, or the part of it that others need, is complete:
# the first one registers Dask's own `ucx://`, the second one is imported in any case.
LATER = ("distributed.comm.ucx", "distributed.deploy")


class _Finder:
    """Finds modules where they are, and claims the scheme when the first of them has been loaded."""

    def __init__(self, *names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name not in self.names:
            return None
        sys.meta_path.remove(self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in list(sys.meta_path))), None)
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
    comm = sys.modules.get(COMM)
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if comm is None:
        sys.meta_path.insert(0, _Finder(COMM))
    elif getattr(comm.__spec__, "_initializing", False):
        # distributed 2022 imports dask.sizeof for the first time from within distributed.comm.
        sys.meta_path.insert(0, _Finder(*LATER))
    else:
        _claim()
