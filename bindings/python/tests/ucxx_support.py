"""What the tests of hawser.ucxx share."""

import gc

import pytest

from hawser import ucxx


@pytest.fixture(autouse=True)
def fresh_ucxx():
    ucxx.reset()
    yield
    gc.collect()
    ucxx.reset()
