"""An edit reruns what depends on it and nothing else, also in a fresh clone without data."""

import re
from pathlib import Path

import pytest

from lib.pages.claims import claims_of, read_families
from tests.pipeline.project import (
    DRAWS,
    Stage,
    append,
    claim_files,
    clone,
    contents,
    dvc,
    followers,
    git,
    params_of,
    set_params,
    would_run,
)


@pytest.fixture(scope="module")
def cloned(tiny_pipeline, tmp_path_factory) -> Path:
    """A fresh clone of the tiny pipeline: what git keeps, no data and no cache."""
    return clone(tiny_pipeline.folder, tmp_path_factory.mktemp("edits") / "clone")


@pytest.fixture
def project(cloned):
    """The clone, to be changed; it is put right again."""
    yield cloned
    git("checkout", "--quiet", "--", ".", at=cloned)
    git("clean", "--quiet", "--force", "-d", at=cloned)


@pytest.fixture
def listed(tiny_pipeline) -> dict[str, Stage]:
    return {stage.name: stage for stage in tiny_pipeline.stages}


def users(listed: dict[str, Stage], file: str) -> set[str]:
    """The names of the stages that depend on a file."""
    return {name for name, stage in listed.items() if file in stage.deps}


def test_editing_a_figure_module_reruns_only_plots_and_what_follows(project, listed):
    file = "lib/pages/style.py"
    append(project / file, "# a wider line\n")
    rerun = set(would_run(project))
    assert users(listed, file) <= rerun <= followers(users(listed, file), tuple(listed.values()))
    assert {listed[name].verb for name in rerun} <= DRAWS


def test_editing_a_bar_reruns_only_claims_report_and_the_figures_that_show_it(project, listed):
    [file, *_] = claim_files(project)
    text = file.read_text(encoding="utf-8")
    _, _, claim = next(claims_of(read_families([file])[file.parent.name]))
    file.write_text(
        text.replace(f" in {claim.interval}", " in (-1e300, 1e300)", 1), encoding="utf-8"
    )
    rerun = would_run(project)
    assert "claims" in rerun
    shows = {name for name in users(listed, file.relative_to(project).as_posix()) if name in rerun}
    assert set(rerun) <= shows | {"claims", "report"}
    assert {listed[name].verb for name in rerun} <= DRAWS


def test_editing_a_param_reruns_the_stage_that_declares_it_and_what_follows(project, listed):
    params = params_of(project)
    params["vision"]["plot"]["lines"] += 1
    set_params(project, params)
    declared = {name for name, stage in listed.items() if "vision.plot" in stage.params}
    rerun = set(would_run(project))
    assert declared <= rerun <= followers(declared, tuple(listed.values()))


def test_editing_a_remark_or_a_test_reruns_nothing_nor_does_what_an_editor_leaves(project):
    append(project / "params.yaml", "# a remark\n")
    append(project / "pyproject.toml", "# a remark\n")
    (project / "tests" / "test_more.py").write_text("# a test\n")
    for leftover in (
        ".params.py.swp",
        "params.py~",
        "__pycache__/params.pyc",
    ):  # of an editor, of Python
        file = project / "lib" / "files" / leftover
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"left over")
    assert would_run(project) == []


@pytest.mark.slow
def test_a_figure_is_drawn_anew_in_a_clone_without_data(project, listed):
    before = contents(project, ["metrics", "plots"])
    append(project / "lib/pages/style.py", "# a wider line\n")
    plot = min(users(listed, "lib/pages/style.py"))
    said = dvc("repro", "--allow-missing", plot, at=project)
    assert re.findall("^Running stage '(.+)':", said, re.MULTILINE) == [plot]
    assert contents(project, ["metrics", "plots"]) == before
