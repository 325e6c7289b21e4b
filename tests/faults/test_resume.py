"""Killed after its first finished cell, every stage that has cells computes again what was in
flight, and no more.

SIGKILL goes to the whole process group of the stage, in the moment in which its first cell is
whole.
"""

import os
import re
import signal
from pathlib import Path

import pytest

from lib.work.compute import available_cores
from tests.faults.harness import assert_same_bytes, keeps_cells
from tests.pipeline.alone import declared_files, run_loaded
from tests.pipeline.project import different_stages

NAMES = [stage.name for stage in different_stages() if keeps_cells(stage)]
QUICK = "low_rank_sparse_adapt"
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name != QUICK]
CELLS_OF_A_JOB = {"checkpoints_plan": 2}  # a plan's cell is open while that of its ends is computed
WHOLE = re.compile(r"(done|[0-9a-f]{24})-[0-9a-f]{24}\.safetensors")  # a cell, or a kept value


def killed_at_the_first_cell() -> None:
    replace = os.replace

    def replaced(source, target):
        replace(source, target)
        if WHOLE.fullmatch(Path(target).name):
            os.killpg(0, signal.SIGKILL)

    os.replace = replaced


def finished(cells: Path) -> dict[Path, int]:
    """When each cell of scratch was finished."""
    found = [file for file in cells.glob("*/*/*") if WHOLE.fullmatch(file.name)]
    return {file: file.stat().st_mtime_ns for file in found}


@pytest.mark.parametrize("name", [QUICK, *SLOW])
def test_a_killed_stage_computes_again_only_what_was_in_flight(name, tiny_pipeline, tmp_path):
    stage = tiny_pipeline.stage(name)
    folder = tmp_path / "alone"
    cells = tmp_path / "scratch" / ".dvc" / "tmp" / "scratch"
    declared_files(stage, tiny_pipeline.folder, folder)
    code, said = run_loaded(stage, folder, tmp_path / "scratch", killed_at_the_first_cell)
    assert code == -signal.SIGKILL, f"it ended before its first cell did:\n{said}"
    before = finished(cells)
    begun = {cell for cell in cells.glob("*/*") if cell.is_dir()}
    in_flight = begun - {file.parent for file in before}
    assert before
    assert len(in_flight) <= available_cores() * CELLS_OF_A_JOB.get(name, 1)
    code, said = run_loaded(stage, folder, tmp_path / "scratch")
    assert code == 0, said
    after = finished(cells)
    assert {file: after.get(file) for file in before} == before, "computed again, or lost"
    assert in_flight <= {file.parent for file in after}
    assert_same_bytes(folder, tiny_pipeline.folder, stage)


def test_every_family_has_such_stages():
    families = {name.partition("_")[0] for name in NAMES}
    assert families >= {"checkpoints", "decision", "gradual", "low", "vision"}
