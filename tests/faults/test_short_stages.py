"""Killed by one of their processes while they work, stages of seconds are run again and end with
the same bytes.
"""

import psutil
import pytest

from tests.faults.harness import is_worker, kill_and_repeat
from tests.pipeline.project import stages

pytestmark = pytest.mark.slow


def workers_are_there(project):
    """Whether a worker process runs in the project."""
    for process in psutil.process_iter():
        try:
            if is_worker(process) and process.cwd() == str(project):
                return True
        except psutil.Error:
            continue
    return False


@pytest.mark.parametrize("victim", ["stage", "worker"])
@pytest.mark.parametrize(
    "module", ["gradual_rank.flow", "low_rank_sparse.train", "decision_lists.flow"]
)
def test_a_stage_that_is_killed_ends_with_the_same_bytes_when_run_again(
    module, victim, tiny_pipeline, tmp_path
):
    project = tiny_pipeline.folder
    [stage] = [stage for stage in stages(project) if stage.module == f"stages.{module}"]
    said, _ = kill_and_repeat(project, tmp_path / "project", stage, workers_are_there, victim)
    if victim == "worker":
        assert "a worker process died" in said
