"""Killed while it works, the flow of the diagonal head is run again and ends with the same bytes."""

from pathlib import Path

import psutil
import pytest
from harness import kill_and_repeat
from project import stages


def has_workers(project: Path) -> bool:
    """Whether workers of a stage run in the project; a flow writes nothing until all of them are done."""
    for process in psutil.process_iter():
        try:
            if "--multiprocessing-fork" in process.cmdline() and Path(process.cwd()) == project:
                return True
        except (psutil.Error, OSError):
            continue
    return False


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["stage", "worker"])
def test_a_flow_that_is_killed_ends_with_the_same_bytes_when_run_again(tiny_pipeline, tmp_path, victim):
    """It is short and has nothing to resume: it begins anew, and nothing of the first attempt stays."""
    project = tiny_pipeline.folder
    [stage] = [stage for stage in stages(project) if stage.module == "stages.gradual_rank.flow"]
    kill_and_repeat(project, tmp_path / "project", stage, has_workers, victim)
