"""`make deps` writes what stages import into dvc.yaml, and touches nothing else of it."""

import re
from pathlib import Path

import pytest
import yaml

from lib.files.files import InputError
from tests.pipeline.project import ROOT, stages
from tools import deps
from tools.deps import with_deps

CODE = {
    "lib/__init__.py": "",
    "lib/one.py": "from lib.two import thing\n",
    "lib/two.py": "thing = 1\n",
    "lib/three.py": "import lib.two\n",
    "stages/__init__.py": "import os\n",
    "stages/any/__init__.py": "",
    "stages/any/train.py": "from lib.one import thing\n",
    "stages/any/plot.py": "def late():\n    from ...lib import three\n",
    "stages/spectra.py": "import sys\n",
}
BEFORE = """\
# The head of the file
vars:
  - other.yaml
stages:

  # any: a family
  any_train:
    desc: Train; see stages/any/plot.py
    cmd: >-
      python -m stages.any.train any.train ${any.cases.tasks}
      data/any/runs
    params:
      - any.train
    deps:
      - stages/any/train.py
      - lib/gone.py
      - ${any.cases.tasks}
      - data/any/tasks
    outs:
      - data/any/runs
    # a comment at its end

  any-plot:
    matrix:
      item: [1, 2]
    cmd: python -m stages.any.plot metrics/any/tables
    deps:
      - metrics/any/tables
    plots:
      - plots/any/figures:
          cache: false

  spectra:
    cmd: python -m stages.spectra
    deps:
      - stages/__init__.py
      - stages/spectra.py
    outs:
      - lib/made.py

  foreign:
    cmd: make it
    deps:
      - z.py
      - a.py

  both:
    cmd: python -m stages.any.plot here && python -m stages.spectra there
    deps: [here]

  bare:
    cmd: python -m stages.spectra

artifacts:
  any-model:
    path: data/any/runs
    desc: made by python -m stages.any.train
"""
AFTER = (
    BEFORE.replace(
        """\
    deps:
      - stages/any/train.py
      - lib/gone.py
      - ${any.cases.tasks}
      - data/any/tasks
""",
        """\
    deps: ["${any.cases.tasks}", data/any/tasks,
           lib/one.py, lib/two.py, stages/__init__.py, stages/any/train.py]
""",
    )
    .replace(
        """\
    deps:
      - metrics/any/tables
""",
        """\
    deps: [metrics/any/tables,
           lib/three.py, lib/two.py, stages/__init__.py, stages/any/plot.py]
""",
    )
    .replace(
        """\
    deps:
      - stages/__init__.py
      - stages/spectra.py
""",
        """\
    deps: [stages/__init__.py, stages/spectra.py]
""",
    )
    .replace(
        """\
    deps: [here]
""",
        """\
    deps: [here,
           lib/three.py, lib/two.py, stages/__init__.py, stages/any/plot.py, stages/spectra.py]
""",
    )
)


@pytest.fixture
def project(tmp_path) -> Path:
    """A small project: its code, and a dvc.yaml whose deps are not what the stages import."""
    for name, text in CODE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "dvc.yaml").write_text(BEFORE)
    return tmp_path


def test_the_deps_of_each_stage_are_what_it_imports_and_all_else_stays(
    project, monkeypatch, capsys
):
    monkeypatch.setattr(deps, "ROOT", project)
    deps.main()
    assert (project / "dvc.yaml").read_text() == AFTER
    assert capsys.readouterr().out == "dvc.yaml: the deps of stages are those of their code again\n"
    assert yaml.safe_load(AFTER).keys() == yaml.safe_load(BEFORE).keys()


def test_a_second_time_nothing_is_written(project, monkeypatch, capsys):
    (project / "dvc.yaml").write_text(AFTER)
    before = (project / "dvc.yaml").stat().st_mtime_ns
    monkeypatch.setattr(deps, "ROOT", project)
    deps.main()
    assert (project / "dvc.yaml").stat().st_mtime_ns == before
    assert capsys.readouterr().out == ""


def test_the_deps_in_git_are_what_the_stages_import():
    """Each dep that is dropped comes back."""
    text = (ROOT / "dvc.yaml").read_text(encoding="utf-8")
    dropped, n = re.subn(r"lib/\S+\.py,\s+", "", text)
    assert n > 100
    assert with_deps(dropped, ROOT).splitlines() == text.splitlines()
    assert [
        one.name for one in stages() if one.module.replace(".", "/") + ".py" not in one.deps
    ] == []


@pytest.mark.parametrize(
    "line",
    ["      - data/any/tasks  # why", "      # why", "      - data/any/tasks: {cache: false}"],
)
def test_deps_that_are_no_plain_list_are_refused(line, project):
    with pytest.raises(
        InputError, match="any_train: wanted deps that are a list of paths without comments, got "
    ):
        with_deps(BEFORE.replace("      - data/any/tasks", line, 1), project)
