"""Worker addresses: connecting by bytes that travel some other way."""

from __future__ import annotations

from dataclasses import dataclass

from . import _check, _core
from . import _constants as c


@dataclass(frozen=True)
class AddressInfo:
    """What an address or blob is. Two lead to the same UCX worker exactly if `worker` is the same."""

    hello: bool
    ucx: tuple[int, int]
    items: int
    worker: int
    text: str


def flags_of(hello: bool, plain: bool, unsafe_shared_memory: bool) -> int:
    return (
        (c.Address.HELLO if hello else 0)
        | (c.Address.PLAIN if plain else 0)
        | (c.ADDRESS_UNSAFE_SHARED_MEMORY if unsafe_shared_memory else 0)
    )


def address_info(address: bytes) -> AddressInfo:
    """Describe an address or blob. Raises InvalidError if it is foreign or damaged."""
    flags, major, minor, items, worker, text = _core.address_query(_check.octets("address", address))
    return AddressInfo(bool(flags & c.Address.HELLO), (major, minor), items, worker, text)


def address_items(blob: bytes) -> dict[int, bytes]:
    """What travelled with an address, by the numbers that Worker.address() was given."""
    blob = _check.octets("blob", blob)
    return dict(_core.blob_item(blob, i) for i in range(address_info(blob).items))
