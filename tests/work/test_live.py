"""Live curves are files of DVCLive where it is installed and DVC runs the stage; otherwise nothing
is written.
"""

import sys
from pathlib import Path

import pytest

from lib.work.live import Curves

ROWS = [{"step": 0, "loss": 2.5, "accuracy": 0.125}, {"step": 40, "loss": 0.5, "accuracy": 1.0}]


def logged(name: str = "section/scale=1/seed=0") -> None:
    with Curves(name) as curves:
        for row in ROWS:
            curves.log(row)


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch) -> Path:
    """A folder in which DVC seems to run a stage."""
    (tmp_path / "project" / ".dvc").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("DVC_ROOT", str(tmp_path / "project"))
    monkeypatch.setenv("DVC_EXP_NAME", "brave-name")
    return tmp_path / "project"


def written(project: Path) -> list[Path]:
    return [path for path in project.rglob("*") if path.is_file() and ".dvc" not in path.parts]


def test_a_row_is_a_line_in_the_file_of_each_of_its_numbers(project):
    pytest.importorskip("dvclive", reason="DVCLive is not installed")
    logged()
    folder = project / "dvclive" / "brave-name" / "section" / "scale=1" / "seed=0"
    curves = folder / "plots" / "metrics"
    assert (curves / "loss.tsv").read_text().split() == ["step", "loss", "0", "2.5", "40", "0.5"]
    rows = (curves / "accuracy.tsv").read_text().splitlines()
    assert rows == ["step\taccuracy", "0\t0.125", "40\t1.0"]
    assert sorted(written(project)) == sorted(
        [curves / "accuracy.tsv", curves / "loss.tsv", folder / "metrics.json"]
    )


def test_nothing_is_written_without_dvclive(project, monkeypatch):
    for name in ("dvclive", "dvclive.live"):
        monkeypatch.setitem(sys.modules, name, None)
    logged()
    assert written(project) == []


def test_nothing_is_written_where_dvc_does_not_run_the_stage(project, monkeypatch):
    monkeypatch.delenv("DVC_ROOT")
    logged()
    assert written(project) == []


def test_curves_that_cannot_be_written_are_a_warning_and_no_error(project):
    pytest.importorskip("dvclive", reason="DVCLive is not installed")
    (project / "dvclive").write_text("a file where the folder should be")
    with pytest.warns(
        UserWarning, match=r"no more live curves of section/scale=1/seed=0: .*dvclive"
    ):
        logged()
