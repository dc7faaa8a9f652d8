"""Contexts: what UCX is set to, and can do."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterable
from typing import Any

from hawser import _core
from hawser._check import each, one
from hawser._context import Context

from . import config as _config
from ._memory import UCXMemoryHandle
from ._object import UCXObject
from .exceptions import HawserError, translate


class Feature(enum.Enum):
    """What a context can do; the values are UCP's flags."""

    TAG = 1
    RMA = 2
    AMO32 = 4
    AMO64 = 8
    WAKEUP = 16
    STREAM = 32
    AM = 64


#: What a context offers unless told otherwise.
DEFAULT_FEATURES = (Feature.TAG, Feature.WAKEUP, Feature.STREAM, Feature.AM, Feature.RMA)


class AllocatorType(enum.Enum):
    """Where an allocator's memory is."""

    HOST = 0
    CUDA = 1
    UNSUPPORTED = -1


_FEATURES = {
    Feature.TAG: ("tag",),
    Feature.STREAM: ("stream",),
    Feature.AM: ("am",),
    Feature.RMA: ("rma",),
}
# From here on UCX moves remote memory with its newer protocols only, which hawser leaves off otherwise.
_NEWER_PROTOCOLS = (1, 18, 0)


def get_current_options() -> dict[str, str]:
    """The options that a context would have now, without the prefix UCX_."""
    return _config.read()


def get_ucx_version() -> tuple[int, int, int]:
    """The version of the UCX that is loaded."""
    found = _core.library(None)
    return found["ucx_major"], found["ucx_minor"], found["ucx_release"]


def is_am_supported() -> bool:
    """Whether there are active messages: always. Programs written for UCX before 1.11 ask."""
    return True


class UCXContext(UCXObject):
    """One UCX context. config_dict: options without the prefix UCX_."""

    # Whether endpoints by worker address reach memory: UCX serves them itself, and any address they name.
    _plain_rma = True

    def __init__(
        self,
        config_dict: dict[str, str] = {},  # noqa: B006
        feature_flags: Iterable[Feature] = DEFAULT_FEATURES,
    ) -> None:
        self._closed = True
        options = _config.checked("config_dict", config_dict)
        self._config = _config.read(options)
        self._features = frozenset(one("feature_flags", f, Feature) for f in each("feature_flags", feature_flags))
        names = [name for f in self._features for name in _FEATURES.get(f, ())]
        if self._plain_rma and Feature.RMA in self._features:
            names.append("ucx_rma")
            if get_ucx_version() >= _NEWER_PROTOCOLS and "UCX_PROTO_ENABLE" not in os.environ:
                options.setdefault("PROTO_ENABLE", "y")
        try:
            self._context = Context(names or ["am"], options)
        except HawserError as e:
            raise translate(e, "ucp_init") from e
        super().__init__()
        self.cuda_support = _has_cuda(self._config["TLS"])

    def get_config(self) -> dict[str, str]:
        """The options of this context, without the prefix UCX_."""
        return dict(self._config)

    @property
    def handle(self) -> int:
        return self._context.id

    def map(self, mem: Any) -> UCXMemoryHandle:
        """Register a buffer, which must live until the handle is closed."""
        self._assert_initialized()
        return UCXMemoryHandle.map(self, mem)

    def alloc(self, size: int) -> UCXMemoryHandle:
        """Allocate and register at least `size` bytes."""
        self._assert_initialized()
        return UCXMemoryHandle.alloc(self, size)

    def info(self) -> str:
        """UCX's description."""
        self._assert_initialized()
        return self._context.info()

    def _need(self, feature: Feature) -> None:
        if feature not in self._features:
            raise ValueError(f"UCXContext must be created with `Feature.{feature.name}`")

    def _finalize(self) -> None:
        with contextlib.suppress(HawserError):
            self._context.close(min(self._patience, 2.0))


def _has_cuda(tls: str) -> bool:
    """Whether a list of transports lets CUDA in; it does not tell whether UCX was built with it."""
    if tls.startswith("^"):
        return not {"cuda", "cuda_copy"} & set(tls[1:].split(","))
    return bool({"all", "cuda", "cuda_copy", "cuda_ipc"} & set(tls.split(",")))
