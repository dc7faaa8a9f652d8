"""Tags and their masks."""

from ._lib.libucxx import UCXXTag, UCXXTagMask, UCXXTagMaskFull

Tag = UCXXTag
TagMask = UCXXTagMask
TagMaskFull = UCXXTagMaskFull

__all__ = ["Tag", "TagMask", "TagMaskFull", "UCXXTag", "UCXXTagMask", "UCXXTagMaskFull"]
