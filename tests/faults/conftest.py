"""What the tests of faults share with those of the pipeline: its helpers, and the tiny pipeline."""

import sys
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "pipeline")]


@pytest.fixture(scope="session")
def tiny_pipeline(tmp_path_factory):
    """A repository in which `dvc repro` has run on tiny params. Copy what is to be changed."""
    from tiny import tiny_pipeline

    return tiny_pipeline(tmp_path_factory.getbasetemp() / "tiny")


def pytest_collection_modifyitems(items):
    """Give the first test that needs the tiny pipeline the time to run it."""
    for item in items:
        if "tiny_pipeline" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1800))
