"""Killed after its first finished cell, every stage that has cells computes again what was in
flight, and no more.

SIGKILL goes to the whole process group of the stage, in the moment in which its first cell is
whole.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lib.work.compute import available_cores
from tests.faults.harness import keeps_cells
from tests.pipeline.alone import declared_files, run_alone
from tests.pipeline.project import contents, different_stages, environment

pytestmark = pytest.mark.slow

NAMES = [stage.name for stage in different_stages() if keeps_cells(stage)]
WHOLE = ("done-*.safetensors", "[0-9a-f]" * 24 + "-*.safetensors")  # a cell, or a value of `kept`
CUT_OFF = str(Path(__file__).parent / "cut_off")


def finished(scratch: Path) -> dict[Path, int]:
    """When each cell of scratch was finished."""
    found = [
        file
        for pattern in WHOLE
        for file in (scratch / ".dvc" / "tmp" / "scratch").glob(f"*/*/{pattern}")
    ]
    return {file: file.stat().st_mtime_ns for file in found}


def begun(scratch: Path) -> set[Path]:
    """The cells that were begun: their folders."""
    return {
        folder for folder in (scratch / ".dvc" / "tmp" / "scratch").glob("*/*") if folder.is_dir()
    }


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups to kill")
@pytest.mark.parametrize("name", NAMES)
def test_a_killed_stage_computes_again_only_what_was_in_flight(name, tiny_pipeline, tmp_path):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    folder, scratch = tmp_path / "alone", tmp_path / "scratch"
    declared_files(stage, tiny_pipeline.folder, folder)
    variables = environment(
        folder, DVC_ROOT=str(scratch), PYTHONDONTWRITEBYTECODE="1", PYTHONPATH=CUT_OFF
    )
    killed = subprocess.run(
        stage.cmd,
        shell=True,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, (
        f"it ended before its first cell did:\n{killed.stderr}"
    )
    before = finished(scratch)
    in_flight = begun(scratch) - {file.parent for file in before}
    assert len(before) >= 1
    assert len(in_flight) <= available_cores()
    done = run_alone(stage, folder, scratch)
    assert done.returncode == 0, done.stderr
    after = finished(scratch)
    assert {file: after.get(file) for file in before} == before, "computed again, or lost"
    assert in_flight <= {file.parent for file in after}
    outs = [out.path for out in stage.outs]
    made, wanted = contents(folder, outs), contents(tiny_pipeline.folder, outs)
    assert sorted(made) == sorted(wanted)
    assert [file for file in wanted if made[file] != wanted[file]] == [], (
        "not the bytes of an undisturbed run"
    )


def test_every_family_has_such_stages():
    assert {name.partition("_")[0] for name in NAMES} >= {
        "checkpoints",
        "decision",
        "gradual",
        "low",
        "vision",
    }
