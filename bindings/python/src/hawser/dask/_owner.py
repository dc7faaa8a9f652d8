"""Who owns `ucx://` in Dask."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import logging
import sys
from pathlib import Path

import dask

log = logging.getLogger("hawser.dask")

VARIABLE = "DASK_DISTRIBUTED__COMM__UCX__OWNER"
NANNY = "distributed.nanny.pre-spawn-environ"


@functools.cache
def _say_once(text: str) -> None:
    log.info(text)


def _has_distributed_ucxx() -> bool:
    """The distribution hawser-distributed-ucxx, which lends Hawser that name, does not count."""
    spec = importlib.util.find_spec("distributed_ucxx")
    return spec is not None and Path(spec.origin or "").parent.parent.name != "_hawser_distributed_ucxx"


def _tell_nannies(owner: object) -> None:
    """Have the workers that nannies of this process start decide likewise.

    They get the configuration of this process only after they have imported Dask and decided.
    """
    environ = dask.config.get(NANNY, None)
    if isinstance(environ, dict) and VARIABLE not in environ:
        dask.config.set({NANNY: {**environ, VARIABLE: owner or "none"}})


def claim_ucx() -> bool:
    """Take over `ucx://` in this process, if the setting `distributed.comm.ucx.owner` says so.

    Workers of nannies that are made in this process from now on do likewise.

    Connections and listeners that exist keep their transport. True if the scheme is Hawser's now.
    Raises ValueError if the setting is none of "auto", "hawser", "none".
    """
    owner = dask.config.get("distributed.comm.ucx.owner", "auto")
    if owner != "auto":
        _tell_nannies(owner)
    if owner in ("none", None, False):
        return False
    if owner not in ("auto", "hawser"):
        raise ValueError(f'distributed.comm.ucx.owner is {owner!r}; it must be "auto", "hawser" or "none"')
    if owner == "auto" and _has_distributed_ucxx():
        _say_once('ucx:// is left to distributed-ucxx; set distributed.comm.ucx.owner to "hawser" to change that')
        return False
    from distributed.comm.registry import backends

    from ._backend import UCXBackend

    # Dask's own registers itself when it is imported, which must not come later.
    with contextlib.suppress(ImportError):
        importlib.import_module("distributed.comm.ucx")
    backends["ucx"] = UCXBackend()
    _rename()
    return True


def _rename() -> None:
    """Programs that know the classes by their old names in distributed.comm.ucx find those that are used."""
    module = sys.modules.get("distributed.comm.ucx")
    if module is not None:
        from ._backend import UCXBackend
        from ._comm import HawserComm
        from ._connector import UCXConnector
        from ._listener import UCXListener

        vars(module).update(UCX=HawserComm, UCXBackend=UCXBackend, UCXConnector=UCXConnector, UCXListener=UCXListener)
