"""What a stage imports is what dvc.yaml says it depends on, and modules import only what the design
lets them.
"""

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lib.files.sources import closure, imported
from tests.pipeline.project import DRAWS, ROOT, Stage, append, stages
from tools.imports import dep, imports_by_name

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


def differences(listed: Sequence[Stage], root: Path = ROOT) -> list[str]:
    """Where a stage's deps of code are not what its modules import, in words."""
    found = []
    for stage in listed:
        files = [module.replace(".", "/") + ".py" for module in stage.modules]
        needed = {dep(path): by for file in files for path, by in closure(file, root).items()}
        needed.pop(None, None)
        for path in sorted(set(needed) - stage.code):
            by = f", which {needed[path]} imports" if needed[path] else ""
            found.append(f"{stage.name}: its deps in dvc.yaml lack {path}{by}")
        for path in sorted(stage.code - set(needed)):
            found.append(
                f"{stage.name}: its deps in dvc.yaml hold {path}, which {' '.join(files)} does "
                "not import"
            )
    return found


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
        return _is_figure(there) if own else room in shared
    if own and room not in SHARED:
        return not _is_figure(there)
    if here.parts[0] == "lib" and here.parts[1] in SHARED:
        return own or other.startswith(SHARED[here.parts[1]])
    return room in SHARED


def _is_figure(path: Path) -> bool:
    return path.parts[0] == "lib" and "figures" in (path.parts[2], path.stem)


def circle(files: Sequence[str], root: Path = ROOT) -> list[str]:
    """Files that import each other in a circle, in order; none where there is no circle."""
    done: set[str] = set()

    def searched(file: str, way: list[str]) -> list[str]:
        if file in way:
            return [*way[way.index(file) :], file]
        if file in done:
            return []
        for other in sorted(imported(file, root)):
            if found := searched(other, [*way, file]):
                return found
        done.add(file)
        return []

    return next((found for file in files if (found := searched(file, []))), [])


def trespasses(files: Sequence[str], root: Path = ROOT) -> list[str]:
    """Where a file imports what the design's table does not let it, in words."""
    return [
        f"{file} imports {o}"
        for file in files
        for o in sorted(imported(file, root))
        if not may_import(file, o)
    ]


@pytest.fixture
def copied(tmp_path) -> Path:
    """The code in a folder of its own, to be changed."""
    for name in ("lib", "stages"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_code_that_a_stage_depends_on_is_the_code_that_it_imports():
    problems = differences(stages())
    assert not problems, "\n".join(problems)


def test_modules_import_only_what_the_design_lets_them():
    problems = trespasses(CODE)
    assert not problems, "\n".join(problems)


def test_no_module_imports_by_a_name_made_at_run_time():
    problems = [f"{file}:{line}" for file in CODE for line in imports_by_name(file, ROOT)]
    assert not problems, "such an import is seen by no reader of the source: " + ", ".join(problems)


def test_an_import_by_name_is_seen_however_it_is_called(tmp_path):
    (tmp_path / "a.py").write_text("import importlib\nimportlib.import_module('b')\nexec('c')\n")
    assert imports_by_name("a.py", tmp_path) == [2, 3]


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


@pytest.mark.parametrize(
    "statement",
    [
        "import lib.extra",
        "from lib import extra",
        "def later():\n    from lib.extra import thing\n",
        "if TYPE_CHECKING:\n    from lib.extra import thing",
        "from {dots}lib.extra import thing",
    ],
)
def test_an_import_added_anywhere_in_a_stage_is_noticed(copied, statement):
    stage = stages()[0]
    file = stage.module.replace(".", "/") + ".py"
    (copied / "lib" / "extra.py").write_text("from lib.deeper import thing\n")
    (copied / "lib" / "deeper.py").write_text("thing = 1\n")
    append(copied / file, "\n" + statement.format(dots="." * len(Path(file).parts)))
    assert differences([stage], copied) == [
        f"{stage.name}: its deps in dvc.yaml lack lib/deeper.py, which lib/extra.py imports",
        f"{stage.name}: its deps in dvc.yaml lack lib/extra.py, which {file} imports",
    ]


def test_a_package_that_is_not_empty_is_a_dependency(copied):
    stage = stages()[0]
    assert "lib/__init__.py" not in closure("lib/files/params.py", copied)
    append(copied / "lib" / "__init__.py", "from lib import extra\n")
    (copied / "lib" / "extra.py").write_text("thing = 1\n")
    lacking = [problem.split(",")[0] for problem in differences([stage], copied)]
    assert lacking == [
        f"{stage.name}: its deps in dvc.yaml lack {f}" for f in ("lib/__init__.py", "lib/extra.py")
    ]


def test_a_dependency_that_is_dropped_from_or_added_to_dvc_yaml_is_noticed():
    stage = next(stage for stage in stages() if len(stage.code) > 1)
    dropped = sorted(stage.code)[0]
    without = dataclasses.replace(stage, deps=tuple(dep for dep in stage.deps if dep != dropped))
    [problem] = differences([without])
    assert problem.startswith(f"{stage.name}: its deps in dvc.yaml lack {dropped}")
    more = dataclasses.replace(stage, deps=(*stage.deps, "lib/extra.py"))
    [problem] = differences([more])
    assert problem.startswith(f"{stage.name}: its deps in dvc.yaml hold lib/extra.py, which ")


def test_no_modules_import_each_other_in_a_circle(copied):
    assert circle(CODE) == []
    (copied / "lib" / "one.py").write_text("import lib.two\n")
    (copied / "lib" / "two.py").write_text("def later():\n    import lib.one\n")
    assert circle(["lib/one.py"], copied) == ["lib/one.py", "lib/two.py", "lib/one.py"]


# A file, what it may import, and what it may not.
TABLE = """
stages/vision/train.py      lib/vision/vit.py           lib/vision/figures/ranks.py
stages/vision/train.py      lib/training/sgd.py         lib/checkpoints/models.py
stages/vision/plot.py       lib/vision/figures/ranks.py lib/vision/measures.py
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
