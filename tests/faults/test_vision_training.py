"""Killed at any moment, the training of vision transformers goes on where it was, and ends with the
same bytes.
"""

import re
from functools import reduce
from pathlib import Path

import pytest

from tests.faults.harness import (
    Reproduction,
    assert_same,
    kill_and_repeat,
    not_yet_run,
    repeat,
    scratch_holds,
)
from tests.pipeline.project import Stage, duplicate, dvc, params_of, set_params, stages

SNAPSHOT, CHECKPOINT = "vision/*/snapshot-*.safetensors", "vision/*/checkpoint-*.safetensors"
HASTY = {
    "PYTHONPATH": str(Path(__file__).parent / "hasty")
}  # checkpoints come after a quarter of a second, not five


def training(project: Path) -> Stage:
    return next(stage for stage in stages(project) if stage.module == "stages.vision.train")


@pytest.fixture(scope="module")
def undisturbed(tiny_pipeline, tmp_path_factory) -> Path:
    """A project whose training, of one variant and two seeds, is long enough to be disturbed."""
    project = duplicate(
        tiny_pipeline.folder, tmp_path_factory.mktemp("faults") / "undisturbed", "scratch"
    )
    params = params_of(project)
    declared = training(tiny_pipeline.folder).params
    [path] = [name.split(".") for name in declared if name.endswith(".train")]
    section = reduce(lambda found, name: found[name], path, params)
    section |= {
        "init_scales": section["init_scales"][-1:],
        "controls": [],
        "n_steps": 1000,
        "snapshot_every": 1000,
    }
    set_params(project, params)
    dvc("repro", training(project).name, at=project)
    return project


@pytest.fixture(scope="module")
def interrupted(undisturbed, tmp_path_factory) -> Path:
    """The same, killed when one seed had two checkpoints."""
    stage = training(undisturbed)
    project = not_yet_run(undisturbed, tmp_path_factory.mktemp("faults") / "interrupted", stage)
    with Reproduction(project, stage, **HASTY) as first:
        first.until(scratch_holds("vision/*/snapshot-000000000-*", n=2))
        first.until(
            lambda project: any(len(s) > 1 and s[-1] > 99 for s in checkpoints(project).values())
        )
        assert first.find("worker")
        first.kill("stage")
        first.ended()
    return project


def scratch(project: Path) -> Path:
    return project / ".dvc" / "tmp" / "scratch"


def checkpoints(project: Path) -> dict[str, list[int]]:
    """The steps of the checkpoints in each cell of scratch, the newest last."""
    found: dict[str, list[int]] = {}
    for file in sorted(scratch(project).glob(CHECKPOINT)):
        found.setdefault(file.parent.name, []).append(int(file.name.split("-")[1]))
    return found


def cut(project: Path, cell: str, name: str) -> None:
    """Cut a file of scratch short."""
    [file] = (scratch(project) / "vision" / cell).glob(name)
    file.write_bytes(file.read_bytes()[:-100])


def resumed(said: str) -> dict[str, int]:
    """The steps at which cells of scratch were resumed."""
    return {
        Path(cell).name: int(step)
        for step, cell in re.findall(r"resumed at step (\d+): (\S+)", said)
    }


@pytest.mark.slow
def test_training_goes_on_from_its_newest_checkpoint_and_not_by_itself(
    interrupted, undisturbed, tmp_path
):
    assert not scratch_holds("vision/*/snapshot-000001000-*", n=2)(interrupted)
    project = duplicate(interrupted, tmp_path / "project")
    newest = {cell: steps[-1] for cell, steps in checkpoints(project).items()}
    said = repeat(project, undisturbed, training(undisturbed))
    assert resumed(said) == newest
    assert "skipped" not in said
    assert not checkpoints(project), "a training that has ended needs none"


@pytest.mark.slow
def test_what_is_cut_short_is_skipped_for_what_was_before(interrupted, undisturbed, tmp_path):
    """The newest checkpoint of one seed, and a snapshot of the other, whose checkpoints are then
    worth nothing.
    """
    project = duplicate(interrupted, tmp_path / "project")
    saved = checkpoints(project)
    one = max(saved, key=lambda cell: len(saved[cell]))
    [other] = {file.parent.name for file in scratch(project).glob(SNAPSHOT)} - {one}
    cut(project, one, f"checkpoint-{saved[one][-1]:09d}-*")
    cut(project, other, "snapshot-000000000-*")
    said = repeat(project, undisturbed, training(undisturbed))
    assert resumed(said) == {one: saved[one][-2]}
    assert said.count("is cut short or altered; it is skipped") == 2


@pytest.mark.slow
def test_training_of_which_a_worker_is_killed_stops_and_goes_on_when_run_again(
    undisturbed, tmp_path
):
    stage = training(undisturbed)
    begun = scratch_holds(CHECKPOINT)
    stopped, said = kill_and_repeat(
        undisturbed, tmp_path / "project", stage, begun, "worker", **HASTY
    )
    assert "a worker process died" in stopped
    assert resumed(said)


@pytest.mark.slow
def test_when_dvc_is_killed_its_orphan_does_not_harm_another_run(undisturbed, tmp_path):
    stage = training(undisturbed)
    project = not_yet_run(undisturbed, tmp_path / "project", stage)
    with Reproduction(project, stage) as first:
        first.until(scratch_holds(SNAPSHOT))
        first.kill("dvc")
        repeat(project, undisturbed, stage)
        first.ended()
    assert_same(project, undisturbed, stage)
