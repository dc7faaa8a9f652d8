"""UCXX's Python API over hawser: `import hawser.ucxx as ucxx`."""

from . import exceptions, testing, types
from ._lib import libucxx
from ._lib import libucxx as ucx_api
from ._lib_async import ApplicationContext
from ._version import __git_commit__, __version__
from .core import *  # noqa: F403
from .core import __all__ as _functions
from .core import get_ucx_version as _get_ucx_version
from .exceptions import UCXError
from .utils import get_address, get_ucxpy_logger

__ucx_min_version__ = "1.13.1"
__ucx_version__ = "{}.{}.{}".format(*_get_ucx_version())


__all__ = [
    *_functions,
    "ApplicationContext",
    "UCXError",
    "__git_commit__",
    "__version__",
    "exceptions",
    "get_address",
    "get_ucxpy_logger",
    "libucxx",
    "logger",
    "testing",
    "types",
    "ucx_api",
]

logger = get_ucxpy_logger()
