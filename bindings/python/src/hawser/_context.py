"""Contexts: one UCX instance with its configuration."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from . import _check, _core
from . import _constants as c
from ._remote import RegisteredMemory, check_views, hold
from ._unique import Unique

_FEATURES = {
    "tag": c.Feature.TAG,
    "stream": c.Feature.STREAM,
    "am": c.Feature.AM,
    "rma": c.Feature.RMA,
    "atomic": c.Feature.ATOMIC,
    "ucx_rma": c.Feature.UCX_RMA,
}


def _bit(feature: str) -> int:
    """Raises ValueError where there is no such feature."""
    try:
        return _FEATURES[feature]
    except (KeyError, TypeError):
        raise ValueError(f"{feature!r} is no feature: {', '.join(_FEATURES)}") from None


def nanoseconds(name: str, seconds: float) -> int:
    """The argument `name` as the library counts; 30 years are for ever."""
    return int(min(_check.seconds(name, seconds), 1e9) * 1e9)


class Context(Unique):
    """One UCX instance with its configuration. Workers are opened on it.

    features: any of "tag", "stream", "am", "rma", "atomic", "ucx_rma"; the first three if empty.
    With the last one every peer that knows an address can reach any memory of this process.
    config: UCX settings of this context, without the prefix UCX_.
    ucx: "system", "wheel" or a folder; None for the automatic choice.
    psk: pre-shared key, 16 to 1024 bytes, that every peer must prove to have.
    isolated_max: isolated workers at most; 0 for what the machine allows.
    shared_memory: False: every connection goes by TCP or RDMA.
    ucx_config_only: leave UCX's own defaults; only `config` applies.
    Raises ConfigError (the text names the key), NoUcxError, NoSodiumError, NoDeviceError.
    """

    id = 0

    _mapped: Any = None

    def __init__(
        self,
        features: tuple[str, ...] | list[str] = (),
        config: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        ucx: str | None = None,
        psk: bytes | None = None,
        isolated_max: int = 0,
        shared_memory: bool = True,
        ucx_config_only: bool = False,
    ) -> None:
        bits = 0
        for feature in _check.each("features", features):
            bits |= _bit(feature)
        flags = 0 if shared_memory else c.ContextFlag.NO_SHARED_MEMORY
        flags |= c.ContextFlag.UCX_CONFIG_ONLY if ucx_config_only else 0
        pairs: list[str] = []
        for key, value in _check.mapping("config", {} if config is None else config):
            if not isinstance(key, str):
                raise TypeError(f"a key of UCX's configuration is a str, not {type(key).__name__}")
            pairs += [key.removeprefix("UCX_"), str(value)]
        if any("\0" in text for text in pairs):
            raise ValueError("embedded null character")
        psk = None if psk is None else _check.octets("psk", psk)
        self.id = _core.context_open(bits, flags, name, ucx, tuple(pairs), psk, isolated_max)
        self._features = bits or c.Feature.TAG | c.Feature.STREAM | c.Feature.AM
        self._closed = False

    def has(self, feature: str) -> bool:
        """Whether it was opened with a feature."""
        return bool(self._features & _bit(feature))

    def mem_register(self, buffer: Any) -> RegisteredMemory:
        """Register a writable buffer, so that peers can reach it by its key; it is kept alive meanwhile.

        Raises InvalidError (empty), NoResourceError (locked memory).
        """
        address, length, kind, kept = hold(buffer, True)
        return RegisteredMemory(self, _core.mem_register(self.id, address, length, kind), kept)

    def mem_alloc(self, length: int) -> RegisteredMemory:
        """Allocate at least `length` bytes, preferably of shared memory, and register them."""
        return RegisteredMemory(self, _core.mem_alloc(self.id, length))

    def close(self, timeout: float = 5.0) -> None:
        """Close it, with the workers that are left, and wait for that at most `timeout` seconds.

        Raises BufferError while there are views of its memory.
        """
        if self._closed:
            return
        check_views(self)
        left = nanoseconds("timeout", timeout)
        self._closed = True
        _core.close_wait(self.id, left)

    @property
    def closed(self) -> bool:
        return self._closed

    def info(self) -> str:
        """UCX's description of the context, for people."""
        return _core.describe(self.id)

    def stats(self) -> dict[str, int]:
        """The counters of all its workers."""
        return _core.stats(self.id)

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def __aenter__(self) -> Context:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def __del__(self, _warn: Any = warnings.warn, _close: Any = _core.close) -> None:
        if self.id and not self._closed:
            _warn(f"unclosed context {self.id:#x}", ResourceWarning, source=self, stacklevel=1)
            self._closed = True
            _close(self.id)

    def __repr__(self) -> str:
        return f"<hawser.Context {self.id:#x} {'closed' if self._closed else 'open'}>"
