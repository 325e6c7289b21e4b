"""A stage run alone, in a folder with nothing but what dvc.yaml declares that it reads."""

import shutil
import subprocess
from pathlib import Path
from shutil import ignore_patterns
from typing import Any

import yaml

from tests.pipeline.project import Stage, environment, params_of

Contents = dict[str, bytes]


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


def run_alone(stage: Stage, folder: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run a stage's command as DVC does, with scratch of its own: nothing is found there that
    another run has done.
    """
    variables = environment(folder, DVC_ROOT=str(scratch), PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run(
        stage.cmd,
        shell=True,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
