"""UCX's own view of its configuration, read through the copy of UCX that is loaded."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from hawser import _core
from hawser._check import mapping, one

from .exceptions import UCXConfigError

_NO_SUCH = -12  # UCS_ERR_NO_ELEM
_PRINT_CONFIG = 1  # UCS_CONFIG_PRINT_CONFIG


@functools.cache
def library() -> ctypes.CDLL:
    ucp = ctypes.CDLL(_core.library(None)["ucx_path"] + "/libucp.so.0")
    config = ctypes.c_void_p
    ucp.ucp_config_read.restype = ucp.ucp_config_modify.restype = ctypes.c_int8  # UCX packs its enumeration of codes
    ucp.ucp_config_read.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(config)]
    ucp.ucp_config_modify.argtypes = [config, ctypes.c_char_p, ctypes.c_char_p]
    ucp.ucp_config_print.argtypes = [config, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int]
    ucp.ucp_config_print.restype = None
    ucp.ucp_config_release.argtypes = [config]
    ucp.ucp_config_release.restype = None
    ucp.ucs_status_string.argtypes = [ctypes.c_int8]
    ucp.ucs_status_string.restype = ctypes.c_char_p
    return ucp


def _text_of(status: int) -> str:
    return str(library().ucs_status_string(status).decode())


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    libc.open_memstream.restype = ctypes.c_void_p
    libc.open_memstream.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)]
    libc.fclose.argtypes = [ctypes.c_void_p]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None
    return libc


def _printed(config: ctypes.c_void_p) -> str:
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    stream = _libc().open_memstream(ctypes.byref(text), ctypes.byref(size))
    library().ucp_config_print(config, stream, None, _PRINT_CONFIG)
    _libc().fclose(stream)
    try:
        return ctypes.string_at(text, size.value).decode()
    finally:
        _libc().free(text)


def checked(name: str, options: Any) -> dict[str, str]:
    """Options of a caller's argument. Raises TypeError."""
    return {one(name, key, str): one(f"{name}[{key!r}]", value, str) for key, value in mapping(name, options)}


def read(options: dict[str, str] | None = None) -> dict[str, str]:
    """The configuration of a context with these options, and the environment's settings for the rest.

    Keys have no prefix UCX_. Raises UCXConfigError for an option that UCX refuses.
    """
    config = ctypes.c_void_p()
    status = library().ucp_config_read(None, None, ctypes.byref(config))
    if status != 0:
        raise UCXConfigError(f"Couldn't read the UCX options: {_text_of(status)}")
    try:
        for key, value in (options or {}).items():
            status = library().ucp_config_modify(config, key.encode(), value.encode())
            if status == _NO_SUCH:
                raise UCXConfigError(f"Option {key} doesn't exist")
            if status != 0:
                raise UCXConfigError(f"Couldn't set option {key} to {value}: {_text_of(status)}")
        found = {}
        for line in _printed(config).splitlines():
            key, equals, value = line.partition("=")
            if equals:
                found[key.removeprefix("UCX_")] = value
        return found
    finally:
        library().ucp_config_release(config)
