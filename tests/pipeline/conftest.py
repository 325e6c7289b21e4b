"""The whole pipeline on tiny params, run once for every test that asks for it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # project.py and tiny.py; a folder of tests is no package


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
