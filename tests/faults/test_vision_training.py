"""Of which a process is killed, the training of vision transformers goes on where it was, and ends
with the same bytes.
"""

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

CHECKPOINT = "vision/*/checkpoint-*.safetensors"
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
    assert "resumed at step " in said


@pytest.mark.slow
def test_when_dvc_is_killed_its_orphan_does_not_harm_another_run(undisturbed, tmp_path):
    stage = training(undisturbed)
    project = not_yet_run(undisturbed, tmp_path / "project", stage)
    with Reproduction(project, stage) as first:
        first.until(scratch_holds("vision/*/snapshot-*.safetensors"))
        first.kill("dvc")
        repeat(project, undisturbed, stage)
        first.ended()
    assert_same(project, undisturbed, stage)
