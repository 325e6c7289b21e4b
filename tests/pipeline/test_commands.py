"""The commands with which a user of DVC compares and experiments work on this pipeline."""

import csv
import io
import json
import re
import time
from functools import reduce
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.pipeline.project import (
    PYTHON,
    ROOT,
    clone,
    contents,
    duplicate,
    dvc,
    git,
    params_of,
    run,
    stages,
)
from tests.stages.made import read_measures

PLOT = "vision.plot.lines"  # a param that only figures depend on
TRAIN = "vision.digits.train.n_steps"  # a param that all depends on


@pytest.fixture(scope="module")
def copied(tiny_pipeline, tmp_path_factory) -> Path:
    """The tiny pipeline with its data and its three commits, to be experimented with."""
    return duplicate(
        tiny_pipeline.folder, tmp_path_factory.mktemp("commands") / "project", "scratch"
    )


@pytest.fixture
def project(copied):
    """The copy, to be experimented with; its workspace is put right again, its processes are
    ended.
    """
    yield copied
    working = [process for process in psutil.process_iter() if copied in folders(process)]
    for process in psutil.wait_procs(working, timeout=60)[1]:
        process.kill()
    git("reset", "--quiet", "--hard", at=copied)
    dvc("checkout", "--quiet", at=copied)


def folders(process: psutil.Process) -> list[Path]:
    try:
        here = Path(process.cwd())
    except (psutil.Error, OSError):
        return []
    return [here, *here.parents]


def experiments(project: Path, key: str) -> dict[str, str]:
    """The value of a param in every experiment, by name."""
    said = dvc("exp", "show", "--csv", at=project)
    rows = csv.DictReader(io.StringIO(said[said.index("Experiment,") :]))
    return {row["Experiment"]: row[key] for row in rows if row["Experiment"]}


def stages_run(said: str) -> list[str]:
    return re.findall(r"^Running stage '(.+)':", said, re.MULTILINE)


def value(project: Path, key: str) -> Any:
    return reduce(lambda found, name: found[name], key.split("."), params_of(project))


def test_the_metrics_of_all_families_fit_a_screen():
    """So do the first columns of `dvc exp show`, which a pager cuts at the edge of the terminal."""
    header, *rows = dvc("metrics", "show", at=ROOT).splitlines()
    families = {
        stage.name.partition("_evaluate")[0] for stage in stages() if "_evaluate" in stage.name
    }
    shown = [row for row in rows if re.search(r"\d", row.partition(" ")[2])]
    assert all(any(row.startswith(f"metrics/{family}/") for row in shown) for family in families)
    assert max(len(row) for row in (header, *rows)) <= 160


@pytest.mark.slow
def test_an_experiment_in_a_folder_of_its_own_trains_and_leaves_the_workspace_alone(
    project, tiny_pipeline
):
    outs = [out.path for stage in tiny_pipeline.stages for out in stage.outs]
    before = contents(project, outs)
    [trained] = [
        stage.name for stage in tiny_pipeline.stages if TRAIN.rsplit(".", 1)[0] in stage.params
    ]
    said = dvc("exp", "run", "--temp", "--name", "apart", "-S", f"{TRAIN}=4", trained, at=project)
    assert stages_run(said) == [trained]
    assert git("status", "--porcelain", at=project) == ""
    assert contents(project, outs) == before
    assert experiments(project, TRAIN)["apart"] == "4"
    assert any((project / ".dvc" / "tmp" / "scratch").rglob("*.safetensors")), (
        "scratch is not where the next run looks"
    )
    [saved] = [
        ref
        for ref in git("for-each-ref", "--format=%(refname)", at=project).split()
        if ref.endswith("/apart")
    ]
    assert "n_steps: 4" in git("show", f"{saved}:dvc.lock", at=project)


@pytest.mark.slow
def test_a_sweep_of_few_init_scales_and_seeds_goes_to_its_end(project):
    scales, seeds = f"{TRAIN.rpartition('.')[0]}.init_scales", f"{TRAIN.rpartition('.')[0]}.n_seeds"
    dvc("exp", "run", "-S", f"{scales}=[1]", "-S", f"{seeds}=1", at=project)
    _, measured = read_measures(project / "metrics" / "vision" / "digits")
    assert list(measured["stable_rank.W_KQ"]["1"]) == ["0"]
    assert "growth_with_init_scale.W_KQ" not in measured
    claims = json.loads((project / "metrics" / "claims.json").read_text())
    judged = claims["rank_of_w_kq_grows_with_init_scale"]["cases"]
    cases = {case["case"] for case in judged}
    assert "digits" not in cases
    assert "digits, long" in cases  # which is published


@pytest.mark.slow
def test_queued_experiments_run_one_after_the_other(project):
    dvc("exp", "run", "--queue", "-S", f"{PLOT}=1,2", at=project)
    assert len(queue(project)) == 2
    dvc("queue", "start", at=project)
    while set(queue(project)) & {"Queued", "Running"}:
        time.sleep(3)
    assert queue(project) == ["Success", "Success"], dvc("queue", "status", at=project)
    assert {"1", "2"} <= set(experiments(project, PLOT).values())
    assert git("status", "--porcelain", at=project) == ""
    said = run(PYTHON, "-m", "tools.sweep", PLOT, "vision/digits:test_accuracy", at=project)
    assert all(re.search(rf"│ {lines} +│", said) for lines in (1, 2)), said
    assert (project / "sweep.svg").read_text(encoding="utf-8").startswith("<?xml")


def queue(project: Path) -> list[str]:
    """The state of each task of the queue."""
    said = dvc("queue", "status", at=project)
    return re.findall(r"\b(Queued|Running|Success|Failed)\b", said)


@pytest.mark.slow
def test_who_clones_takes_the_runs_from_a_remote_instead_of_training(tiny_pipeline, tmp_path):
    remote = tmp_path / "remote"
    project = duplicate(tiny_pipeline.folder, tmp_path / "project", "scratch")
    dvc("remote", "add", "--quiet", "--local", "--default", "shared", str(remote), at=project)
    dvc("push", "--quiet", at=project)
    other = clone(project, tmp_path / "other")
    dvc("remote", "add", "--quiet", "--local", "--default", "shared", str(remote), at=other)
    dvc("pull", "--quiet", at=other)
    assert stages_run(dvc("repro", at=other)) == []
    outs = [out.path for stage in tiny_pipeline.stages for out in stage.outs]
    assert contents(other, outs) == contents(project, outs)
