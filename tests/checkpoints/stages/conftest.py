"""What the tests of stages share: a pair of each kind with its plans, and tables for evaluate."""

import os

import pytest

from tests.checkpoints.checkpoints_made import VARIED, planned, taught
from tests.checkpoints.checkpoints_tables import evaluate, made_tables


def made_plans(kind, folder):
    """The plans of a pair of that kind that was taught, in its own folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("DVC_ROOT", raising=False)
        patch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
        (folder / "text.txt").write_bytes(VARIED)
        return planned(*taught(kind, folder), folder / "text.txt")


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return made_plans("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory):
    return made_plans("gpt2", tmp_path_factory.mktemp("gpt2"))


@pytest.fixture(scope="session", params=["llama", "gpt2"])
def plans(request):
    """The plans of a pair that was taught."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_bytes(VARIED)
    return tmp_path / "text.txt"


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """Made tables, and the folder in which evaluate wrote its metrics of them."""
    tables = made_tables()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("evaluated"))
        return tables, evaluate(tables)
