"""Arrays as UCXX describes them."""

from hawser.ucp._libs.arr import Array, asarray

__all__ = ["Array", "asarray"]
