"""UCXX's workers, endpoints and listeners over those of hawser.ucp.

Everything is posted at once, by whoever calls: delayed submission and Python futures are accepted
and change nothing.
"""

from __future__ import annotations

from hawser.ucp._libs.ucx_api import Feature, get_current_options, get_ucx_version

from ..exceptions import *  # noqa: F403
from .context import UCXAddress, UCXConfig, UCXContext
from .endpoint import UCXEndpoint
from .enums import PythonAmSendMemoryTypePolicy, PythonRequestNotifierWaitState
from .listener import UCXListener
from .requests import UCXBufferRequest, UCXBufferRequests, UCXRequest
from .tags import TagProbeResult, UCXXTag, UCXXTagMask, UCXXTagMaskFull
from .worker import UCXWorker

__all__ = [
    "Feature",
    "PythonAmSendMemoryTypePolicy",
    "PythonRequestNotifierWaitState",
    "TagProbeResult",
    "UCXAddress",
    "UCXBufferRequest",
    "UCXBufferRequests",
    "UCXConfig",
    "UCXContext",
    "UCXEndpoint",
    "UCXListener",
    "UCXRequest",
    "UCXWorker",
    "UCXXTag",
    "UCXXTagMask",
    "UCXXTagMaskFull",
    "get_current_options",
    "get_ucx_version",
]
