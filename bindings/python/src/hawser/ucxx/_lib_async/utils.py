"""Helpers of UCXX's asyncio API."""

from hawser.ucp.utils import get_event_loop, hash64bits, mp

__all__ = ["get_event_loop", "hash64bits", "mp"]
