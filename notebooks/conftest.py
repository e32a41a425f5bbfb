"""Under pytest, the notebooks' runs lie in a directory of their own and are gone afterwards."""

import os
import tempfile

import pytest

RUNS = tempfile.TemporaryDirectory(prefix="tfjob-notebooks-")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Say so before the first cell of a notebook starts its kernel."""
    os.environ["TFJOB_HOME"] = RUNS.name


def pytest_unconfigure():
    """Remove them."""
    RUNS.cleanup()
