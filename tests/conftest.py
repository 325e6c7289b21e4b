"""Every test computes with one thread, and every call into lib is checked against its types and
shapes.
"""

import importlib
import itertools
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from hypothesis import Phase, settings
from jaxtyping import install_import_hook
from threadpoolctl import threadpool_limits

install_import_hook("lib", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")
torch.set_num_threads(1)
threadpool_limits(1)
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
)
settings.load_profile("repeatable")

Run = Callable[..., None]


def pytest_runtest_setup():
    """What a test draws without a generator of its own does not depend on the tests before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_figure_stays_open():
    """What one test draws is closed before the next, which may count the figures that are open."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(scope="session")
def tiny_pipeline(tmp_path_factory):
    """A repository in which `dvc repro` has run on tiny params. Copy what is to be changed.

    Processes side by side share one run, and each has a copy of its own: DVC locks its repository.
    """
    from tests.pipeline.tiny import TinyPipeline, tiny_pipeline

    own = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return tiny_pipeline(own / "tiny")
    made = tiny_pipeline(own.parent / "tiny")
    shutil.copytree(made.folder, own / "tiny", symlinks=True)
    return TinyPipeline(own / "tiny", made.said, made.status)


@pytest.fixture
def hasty(monkeypatch):
    """A clock of which each look takes a hundred times as long as all before: every checkpoint is
    due.
    """
    from lib.work import cells

    ticks = (100.0**k for k in itertools.count())
    monkeypatch.setattr(cells, "time", SimpleNamespace(monotonic=lambda: next(ticks)))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call `stage(module, params, *arguments)` runs `stages.<module>.main(*arguments)` in
    `tmp_path`; arguments may be given by name, too.

    `params` maps dotted sections of params.yaml to their values; there is nothing else in the file.
    All is computed in this process: that workers change no bit is tested elsewhere.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)

    def run(module: str, params: dict[str, Any], *arguments: Any, **named: Any) -> None:
        written: dict[str, Any] = {}
        for section, values in params.items():
            *outer, last = section.split(".")
            inner = written
            for name in outer:
                inner = inner.setdefault(name, {})
            inner[last] = values
        Path("params.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
        importlib.import_module(f"stages.{module}").main(*arguments, **named)

    return run


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Order the tests: first a file that makes the tiny pipeline, then what does not need it, then
    what does, and last every stage alone.
    """
    in_need = [item for item in items if "tiny_pipeline" in getattr(item, "fixturenames", ())]
    for item in in_need:
        item.add_marker(pytest.mark.timeout(1800))
    first = next((item.path for item in in_need), None)
    files = {item.path for item in in_need}
    items.sort(
        key=lambda item: item.path != first and 1 + (item.path in files) + _by_test(item.path)
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Side by side, processes take file by file, but test by test where each test takes a stage of
    its own.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return nodeid if _by_test(config.rootpath / file) else file

    return ByFile(config, log)


def _by_test(file):
    return file.name == "test_hermetic.py"
