"""Every test computes with one thread, and every call into lib is checked against its types and shapes."""

import sys
from functools import lru_cache
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
# What the tests of these folders share.
sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("faults", "pipeline", "stages", "checkpoints")]


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    """What one test draws is closed before the next, which may count the figures that are open."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def tiny_pipeline(tmp_path_factory):
    """A repository in which `dvc repro` has run on tiny params. Copy what is to be changed."""
    from tiny import tiny_pipeline

    return tiny_pipeline(tmp_path_factory.getbasetemp() / "tiny")


def pytest_collection_modifyitems(items):
    """First what needs the tiny pipeline; and the first of that may take the time to make it."""
    items.sort(key=lambda item: not _needs_pipeline(item.path))
    for item in items:
        if "tiny_pipeline" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1800))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Side by side, one process takes every file that needs the tiny pipeline; the others take file by file."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return "tiny pipeline" if _needs_pipeline(config.rootpath / file) else file

    return ByFile(config, log)


@lru_cache
def _needs_pipeline(file):
    return "tiny_pipeline" in file.read_text(encoding="utf-8")
