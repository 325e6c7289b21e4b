"""What a stage will write is said before its work: no less than it writes, and refused where the
disk has less room.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT, Stage, contents

from lib.files.memory import COPIES

pytestmark = pytest.mark.slow

# A stage's module and arguments on a disk with so many bytes free; the last line is what it asked
# for, time after time.
CHILD = """
import os, shutil, sys
from importlib import import_module
from types import SimpleNamespace
from lib.files import memory
_, module, free, *arguments = sys.argv
asked, check = [], memory.check_disk
def noted(folder, n_bytes, what):
    asked.append(int(n_bytes))
    check(folder, n_bytes, what)
memory.check_disk = noted
shutil.disk_usage = lambda _: SimpleNamespace(free=int(free))
os.sched_getaffinity = lambda _: {0}
sys.argv = [module, *arguments]
from lib.work import command
try:
    command.run(import_module(module).main)
finally:
    print(*asked)
"""
PLENTY = 10**18
# Their estimates are by shapes alone, so that they are near to what is written, beside what tables
# have of their own.
NEAR = [
    *(f"gradual_rank_{verb}" for verb in ("greedy", "descend", "spectra")),
    *(f"low_rank_sparse_{verb}" for verb in ("cut", "adapt", "sweep", "spectra")),
    *(f"decision_lists_{verb}" for verb in ("flow", "control", "certify", "constants", "spectra")),
    *(f"vision_{verb}@digits" for verb in ("generate", "train", "cut", "spectra")),
]
STAGES = [
    *NEAR,
    *(
        f"gradual_rank_{verb}"
        for verb in ("generate", "flow", "assumptions", "full_weights", "optimizers", "signs")
    ),
    *(f"low_rank_sparse_{verb}" for verb in ("generate", "train")),
    *(f"decision_lists_{verb}" for verb in ("generate", "descend", "scales", "train", "check")),
    *(f"checkpoints_{verb}" for verb in ("generate", "train", "spectra", "plan")),
]
OF_SEVERAL = (
    "checkpoints_spectra",
    "checkpoints_plan",
)  # models, for all of which room is asked for at first


def placed(stage: Stage, project: Path, at: Path) -> tuple[str, list[str]]:
    """The module and arguments of a stage that writes into `out`, in a folder with what it
    reads.
    """
    for entry in ("data", "stages", "lib", "params.yaml"):
        (at / entry).symlink_to(project / entry)
    _, _, module, *arguments = stage.cmd.split()
    made = [out.path for out in stage.outs]
    written = [
        one for one in arguments if any(out == one or out.startswith(one + "/") for out in made)
    ]
    for dep in stage.deps:  # what stands in a folder beside what is written there
        if any(dep.startswith(one + "/") for one in written):
            (shutil.copytree if (project / dep).is_dir() else shutil.copy)(
                project / dep, parent_of(at / "out" / dep)
            )
    return module, [f"out/{one}" if one in written else one for one in arguments]


def parent_of(place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


def called(
    at: Path, module: str, arguments: list[str], free: int
) -> subprocess.CompletedProcess[str]:
    plain = {"PYTHONPATH": str(ROOT), "PATH": ""}
    command = [sys.executable, "-c", CHILD, module, str(free), *arguments]
    return subprocess.run(command, cwd=at, env=plain, capture_output=True, text=True, timeout=250)


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_asks_for_no_less_room_than_it_fills_and_ends_in_one_line_where_it_is_not_there(
    name, tiny_pipeline, tmp_path
):
    [stage] = [stage for stage in tiny_pipeline.stages if stage.name == name]
    module, arguments = placed(stage, tiny_pipeline.folder, tmp_path)
    given = contents(tmp_path, ["out"])
    done = called(tmp_path, module, arguments, PLENTY)
    assert done.returncode == 0, done.stderr
    asked = [int(number) for number in done.stdout.splitlines()[-1].split()]
    made = contents(tmp_path, ["out"])
    filled = sum(len(content) for file, content in made.items() if file not in given)
    n_bytes = asked[0] if name in OF_SEVERAL else sum(asked)
    assert 0 < COPIES * filled <= n_bytes, f"{filled} bytes, asked for {n_bytes / COPIES:.0f}"
    if name in NEAR:
        assert sum(asked) <= COPIES * (4 * filled + 100_000), (
            f"{filled} bytes, asked for {sum(asked) / COPIES:.0f}"
        )
    assert max(asked) == asked[0] or name not in OF_SEVERAL
    done = called(tmp_path, module, arguments, max(asked) - 1)
    assert done.returncode == 1, done.stdout + done.stderr
    *others, last = done.stderr.splitlines()
    assert last.startswith("error: ")
    assert "GB of disk, got " in last
    assert not any("Traceback" in line or "%|" in line for line in others), "work has begun"
    assert contents(tmp_path, ["out"]) == made
