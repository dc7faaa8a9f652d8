"""UCX-Py's API over hawser: programs written for `ucp` run unchanged.

The distribution hawser-ucp gives this package the top-level name `ucp`.
"""

from . import _libs, comm, exceptions, utils  # noqa: F401
from . import continuous_ucx_progress as _continuous_ucx_progress  # noqa: F401
from ._libs import arr, ucx_api, utils_test  # noqa: F401
from ._libs.utils import get_address as get_address
from ._version import __git_commit__, __version__  # noqa: F401
from .core import *  # noqa: F403
from .core import continuous_ucx_progress, get_ucx_version  # noqa: F401
from .utils import get_ucxpy_logger

logger = get_ucxpy_logger()

__ucx_min_version__ = "1.13.1"
__ucx_version__ = "{}.{}.{}".format(*get_ucx_version())
