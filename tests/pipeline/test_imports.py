"""Modules import only what the design lets them; the deps of stages are in tests/tools/test_deps.py."""

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from lib.files.sources import imported
from tests.pipeline.project import DRAWS, ROOT, stages
from tools.imports import imports_by_name

# What a shared room may import beside its own modules; a family's room may import all shared rooms.
SHARED = {
    "files": (),
    "matrices": ("lib/files/files.py",),
    "training": ("lib/files/files.py",),
    "work": ("lib/files/", "lib/training/devices.py"),
    "pages": ("lib/files/",),
}
CODE = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("lib", "stages")
    for path in ROOT.glob(f"{folder}/**/*.py")
)


def may_import(file: str, other: str) -> bool:
    """Whether the design's table lets a file of lib or stages import another file of the
    repository.
    """
    here = Path(file)
    there = Path(other)
    if there.parts[0] != "lib":
        return here.parts[0] == "stages" and other == "stages/__init__.py"
    room = there.parts[1]
    own = here.parts[1] == room
    draws = here.stem in DRAWS if here.parts[0] == "stages" else _is_figure(here)
    if draws:
        shared = ("pages", "files", "work") if here.parts[0] == "stages" else ("pages",)
        of_tables = here.parts[0] == "stages" and "tables" in there.parts
        return (_is_figure(there) or of_tables) if own else room in shared
    if own and room not in SHARED:
        return not _is_figure(there)
    if here.parts[0] == "lib" and here.parts[1] in SHARED:
        return own or other.startswith(SHARED[here.parts[1]])
    return room in SHARED


def _is_figure(path: Path) -> bool:
    return path.parts[0] == "lib" and "figures" in (path.parts[2], path.stem)


def test_modules_import_only_what_the_design_lets_them():
    imports = [(file, other) for file in CODE for other in imported(file, ROOT)]
    problems = [f"{file} imports {other}" for file, other in imports if not may_import(file, other)]
    assert not problems, "\n".join(problems)


def test_no_modules_import_each_other_in_a_circle():
    TopologicalSorter({file: imported(file, ROOT) for file in CODE}).prepare()


def test_no_module_imports_by_a_name_made_at_run_time():
    problems = [f"{file}:{line}" for file in CODE for line in imports_by_name(file, ROOT)]
    assert not problems, "such an import is seen by no reader of the source: " + ", ".join(problems)


def test_an_import_by_name_is_seen_however_it_is_called(tmp_path):
    (tmp_path / "a.py").write_text(
        "import builtins, importlib\nimportlib.import_module('b')\nexec('c')\nbuiltins.eval('d')\n"
        "model.eval()\n"
    )
    assert imports_by_name("a.py", tmp_path) == [2, 3, 4]


def test_every_module_of_a_stage_stands_in_the_pipeline():
    used = {module.replace(".", "/") + ".py" for stage in stages() for module in stage.modules}
    used |= {other for file in used for other in imported(file, ROOT)}
    idle = sorted(
        file for file in CODE if file.startswith("stages/") and not file.endswith("__init__.py")
    )
    assert not set(idle) - used, f"no stage of dvc.yaml runs {sorted(set(idle) - used)}"


def test_what_draws_or_judges_does_not_load_torch():
    """It takes a second or two, in every process."""
    modules = sorted({stage.module for stage in stages() if stage.verb in DRAWS})
    loaded = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n", modules


# A file, what it may import, and what it may not.
TABLE = """
stages/vision/train.py      lib/vision/vit.py           lib/vision/figures/ranks.py
stages/vision/train.py      lib/training/sgd.py         lib/checkpoints/models.py
stages/vision/plot.py       lib/vision/figures/ranks.py lib/vision/measures.py
stages/vision/plot.py       lib/vision/tables/drawn.py  lib/vision/cuts.py
stages/report.py            lib/files/tables.py         stages/claims.py
stages/spectra.py           lib/matrices/spectra.py     lib/gradual_rank/flow.py
stages/vision/train.py      lib/files/runs.py           stages/vision/evaluate.py
lib/vision/vit.py           lib/training/attention.py   lib/gradual_rank/full_heads.py
lib/vision/measures.py      lib/work/cells.py           lib/vision/figures/ranks.py
lib/matrices/pruning.py     lib/files/files.py          lib/files/runs.py
lib/vision/vit.py           lib/work/cells.py           stages/vision/train.py
lib/vision/figures/ranks.py lib/pages/style.py          lib/files/tables.py
lib/vision/figures/ranks.py lib/vision/figures/cuts.py  lib/vision/measures.py
lib/files/runs.py           lib/files/tables.py         lib/work/cells.py
lib/work/cells.py           lib/training/devices.py     lib/training/sgd.py
lib/pages/claims.py         lib/files/params.py         lib/work/command.py
"""


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_the_table_of_imports(line):
    file, allowed, refused = line.split()
    assert may_import(file, allowed)
    assert not may_import(file, refused)
