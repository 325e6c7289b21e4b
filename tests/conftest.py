"""Every test computes with one thread, and every call into lib is checked against its types and shapes."""

import sys
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, settings
from jaxtyping import install_import_hook
from threadpoolctl import threadpool_limits

install_import_hook("lib", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
torch.set_num_threads(1)
threadpool_limits(1)
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, phases=[Phase.generate, Phase.shrink]
)
settings.load_profile("repeatable")
sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("faults", "pipeline")]  # what their tests share


@pytest.fixture(scope="session")
def tiny_pipeline(tmp_path_factory):
    """A repository in which `dvc repro` has run on tiny params. Copy what is to be changed."""
    from tiny import tiny_pipeline

    return tiny_pipeline(tmp_path_factory.getbasetemp() / "tiny")


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items):
    """Side by side, one process first takes all that needs the tiny pipeline; the others take file by file."""
    items.sort(key=lambda item: not _needs_pipeline(item))
    for item in items:
        item.add_marker(pytest.mark.xdist_group("tiny pipeline" if _needs_pipeline(item) else item.path.name))
        if _needs_pipeline(item):
            item.add_marker(pytest.mark.timeout(1800))  # the first of them makes it


def _needs_pipeline(item):
    return "tiny_pipeline" in getattr(item, "fixturenames", ())
