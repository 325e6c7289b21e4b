"""Set aside what a killed DVC left half written, so that the next one can begin: the first step of
`make repro`.

DVC writes `.dvc/tmp/rwlock` and `dvc.lock` in place. If it is killed meanwhile, it leaves a part of
a file, and every later command fails. DVC makes both files anew; outputs that a stage had made
already come back from its run cache.
"""

import json
import os
from pathlib import Path
from typing import IO

import psutil
import yaml
from dvc.schema import COMPILED_LOCKFILE_SCHEMA
from voluptuous import Invalid, Schema

from lib.files.files import InputError
from lib.work.command import run


def check_rwlock(file: IO[str]) -> None:
    """Check the form of the lock file: who reads and who writes which path."""
    Schema({str: dict})(json.load(file))


def check_dvc_lock(file: IO[str]) -> None:
    """Check the form of `dvc.lock`: what every stage was when it ran."""
    COMPILED_LOCKFILE_SCHEMA(yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


CHECKS = {".dvc/tmp/rwlock": check_rwlock, "dvc.lock": check_dvc_lock}


def main(project: Path = Path()) -> None:
    """Rename each of the two files that is not what DVC reads; raises `InputError` while DVC works
    in the project.
    """
    for name, check in CHECKS.items():
        path = project / name
        try:
            with path.open(encoding="utf-8") as file:
                check(file)
            continue
        except FileNotFoundError:
            continue
        except (ValueError, yaml.YAMLError, Invalid):
            pass
        for pid in running(project):
            got = f"got a part, while DVC works here (process {pid})"
            raise InputError(f"{path}: wanted a whole file, {got}")
        aside = path.with_name(path.name + ".unreadable")
        os.replace(path, aside)
        print(
            f"{path} cannot be read, as if DVC was killed while it wrote it: set aside as "
            f"{aside.name}"
        )


def running(project: Path) -> list[int]:
    """The processes of DVC that work in the project or below it."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            folder = Path(process.cwd())
        except (psutil.Error, OSError):
            continue
        named = any(Path(argument).stem == "dvc" for argument in command[:3])
        if named and folder.is_relative_to(project.resolve()):
            found.append(process.pid)
    return found


def command(project: str = ".") -> None:
    """Set aside the two files of a project if they are not whole; nothing else is read."""
    main(Path(project))


if __name__ == "__main__":
    run(command)
