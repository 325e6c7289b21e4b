"""A stage run alone, in a folder with nothing but what dvc.yaml declares that it reads."""

import multiprocessing
import os
import runpy
import shlex
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shutil import ignore_patterns
from typing import Any, NoReturn

import yaml

from tests.pipeline.project import ROOT, Stage, environment, params_of

LIBRARIES = ["matplotlib.pyplot", "pandas", "pyarrow.parquet", "scipy.stats", "torch"]


def declared_params(stage: Stage, project: Path) -> dict[str, Any]:
    """The params of a project, but only those that a stage declares."""
    params: dict[str, Any] = {}
    for key in stage.params:
        *sections, last = key.split(".")
        source, target = params_of(project), params
        for section in sections:
            source, target = source[section], target.setdefault(section, {})
        target[last] = source[last]
    return params


def declared_files(stage: Stage, project: Path, folder: Path) -> None:
    """Copy a stage's deps; lib/work, which is machinery and no dep; its Python packages, empty
    where no `__init__.py` is declared; and its params.
    """
    shutil.copytree(
        project / "lib/work", folder / "lib/work", ignore=ignore_patterns("__pycache__")
    )
    for dep in stage.deps:
        (folder / dep).parent.mkdir(parents=True, exist_ok=True)
        if (project / dep).is_dir():
            shutil.copytree(project / dep, folder / dep)
        else:
            shutil.copy2(project / dep, folder / dep)
    for package in {parent for file in stage.code for parent in Path(file).parents} - {Path()}:
        (folder / package / "__init__.py").touch()
    if stage.params:
        (folder / "params.yaml").write_text(yaml.safe_dump(declared_params(stage, project)))


def run_loaded(
    stage: Stage, folder: Path, scratch: Path, prepare: Callable[[], object] = int
) -> tuple[int, str]:
    """Run a stage in a fork of a process that has its libraries loaded and has computed nothing:
    how it ended, and what it said. In the fork, `prepare` runs first.

    It is not a fork of this process: threads that have computed here do not survive it, and what
    waits for them waits for ever. A file that Python opens must lie in the folder or in scratch, or
    be code, or none of the repository's.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    log = scratch.with_name(f"{scratch.name}.log")
    child = context.Process(target=_end_as, args=(stage, folder, scratch, log, prepare))
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode, log.read_text(encoding="utf-8")


def _end_as(
    stage: Stage, folder: Path, scratch: Path, log: Path, prepare: Callable[[], object]
) -> NoReturn:
    """End this process as one would that runs the stage."""
    code = 1
    try:
        os.setsid()
        with log.open("w") as said:
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
        sys.stdout = os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w")
        warnings.resetwarnings()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment(folder, DVC_ROOT=str(scratch)))
        sys.addaudithook(partial(_refuse_what_is_not_declared, {ROOT / dep for dep in stage.deps}))
        prepare()
        for part in stage.cmd.split(" && "):
            _, _, module, *sys.argv[1:] = shlex.split(part)
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _refuse_what_is_not_declared(deps: set[Path], event: str, given: tuple[Any, ...]) -> None:
    """Refuse a file of the repository that is neither code nor a dep that stands beside code."""
    if event == "open" and isinstance(given[0], str):
        path = Path(given[0]).absolute()
        library = path.is_relative_to(sys.prefix)  # .venv may stand in the repository
        declared = path in deps or path.suffix.startswith(".py")
        if path.is_relative_to(ROOT) and not library and not declared:
            raise PermissionError(f"{path}: wanted a file that dvc.yaml declares")
