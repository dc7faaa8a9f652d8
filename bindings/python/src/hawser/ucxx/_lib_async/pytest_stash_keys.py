"""Where UCXX's conftest keeps what its tests ask for."""

import pytest

ASYNCIO_PLUGIN_TIMEOUT_STASH_KEY = pytest.StashKey[float]()
