"""Disturb a stage while it works, run it again, and compare with a run that nobody disturbed."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import psutil
import yaml

from lib.files.sources import closure
from tests.pipeline.project import (
    PYTHON,
    ROOT,
    Stage,
    contents,
    duplicate,
    environment,
    followers,
    stages,
)

Begun = Callable[[Path], bool]
LONGEST = 600.0  # seconds that a run may take, on a loaded machine, until nothing of it is alive
Victim = Literal["stage", "worker", "dvc"]
KEEPS = re.compile(r"from lib\.work\.cells import (\([^)]*|.*)\b(spread_cells|kept)\b")


class Reproduction:
    """`dvc repro STAGE` as it runs, and the processes below it; none of them survives the `with`
    statement.
    """

    def __init__(self, project: Path, stage: Stage, *options: str, **variables: str):
        self.project, self.stage = project, stage
        self.log = project.with_name(f"{project.name}-{time.monotonic_ns()}.log")
        with self.log.open("w") as log:
            self.dvc = psutil.Popen(
                [PYTHON, "-m", "dvc", "repro", *options, stage.name],
                cwd=project,
                env=environment(project, **variables),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "Reproduction":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes():
            process.kill()
        self.dvc.wait()

    @property
    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def processes(self) -> list[psutil.Process]:
        """All processes of the session that are alive: an orphan has another parent, but the same
        session.
        """
        return [
            process
            for process in psutil.process_iter()
            if _session(process) == self.dvc.pid and alive(process.pid)
        ]

    def find(self, what: Victim) -> list[psutil.Process]:
        """DVC, the process of the stage, or its workers, as far as they are alive."""

        def is_it(process: psutil.Process) -> bool:
            if what == "dvc":
                return process.pid == self.dvc.pid
            if what == "worker":
                return is_worker(process)
            return self.stage.module in _command(process) and not is_worker(process)

        return [process for process in self.processes() if is_it(process)]

    def until(self, begun: Begun) -> None:
        """Wait until the work has begun."""
        assert self.reached(lambda: begun(self.project)), (
            f"{self.stage.name} ended before it could be disturbed:\n{self.said}"
        )

    def reached(self, true: Callable[[], object]) -> bool:
        """Wait until it is true, or DVC has ended; which of them."""
        while self.dvc.poll() is None:
            if true():
                return True
            time.sleep(0.005)
        return False

    def kill(self, victim: Victim) -> psutil.Process:
        """Kill one process, with SIGKILL."""
        found = self.find(victim)
        assert found, f"{self.stage.name} ended before its {victim} could be killed:\n{self.said}"
        os.kill(found[0].pid, signal.SIGKILL)
        if victim == "dvc":
            self.dvc.wait()  # a zombie would hold DVC's lock
        return found[0]

    def ended(self) -> str:
        """What was said in all, once DVC and all that it started have ended."""
        assert until(lambda: not self.processes(), LONGEST), list(map(_command, self.processes()))
        self.dvc.wait()
        return self.said


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def until(true: Callable[[], object], seconds: float) -> bool:
    """Whether it became true in that time."""
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(true())


def _command(process: psutil.Process | None) -> list[str]:
    try:
        return process.cmdline() if process else []
    except psutil.Error:
        return []


def is_worker(process: psutil.Process) -> bool:
    """Whether it is a child of a stage: a fork of it has the same command."""
    try:
        return any(argument.startswith("stages.") for argument in _command(process.parent()))
    except psutil.Error:
        return False


def scratch_holds(pattern: str, n: int = 1) -> Begun:
    """Whether that many files in scratch fit the pattern."""
    return lambda project: len(list((project / ".dvc" / "tmp" / "scratch").glob(pattern))) >= n


def keeps_cells(stage: Stage) -> bool:
    """Whether a stage keeps cells, or values in one; a training of `vision` keeps checkpoints."""
    own = [module.replace(".", "/") + ".py" for module in stage.modules]
    files = {name for file in own for name in closure(file, ROOT)}
    return any(KEEPS.search((ROOT / name).read_text()) for name in files)


def not_yet_run(undisturbed: Path, folder: Path, stage: Stage) -> Path:
    """A copy of a project as it was before a stage ran: no outs of it, no scratch, and nothing that
    DVC remembers.
    """
    duplicate(undisturbed, folder, "scratch")
    shutil.rmtree(folder / ".dvc" / "cache" / "runs")
    later = followers({stage.name}, stages(undisturbed))
    lock = recorded(folder)
    lock["stages"] = {name: entry for name, entry in lock["stages"].items() if name not in later}
    (folder / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False), encoding="utf-8")
    for out in stage.outs:
        remove(folder / out.path)
    return folder


def recorded(project: Path) -> dict[str, Any]:
    return yaml.load((project / "dvc.lock").read_text(encoding="utf-8"), yaml.CSafeLoader)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def assert_same(project: Path, undisturbed: Path, stage: Stage) -> None:
    """The stage made the same bytes in both, and DVC recorded the same."""
    assert_same_bytes(project, undisturbed, stage)
    assert recorded(project)["stages"][stage.name] == recorded(undisturbed)["stages"][stage.name]


def assert_same_bytes(project: Path, undisturbed: Path, stage: Stage) -> None:
    paths = [out.path for out in stage.outs]
    made, wanted = contents(project, paths), contents(undisturbed, paths)
    assert sorted(made) == sorted(wanted)
    assert [name for name in wanted if made[name] != wanted[name]] == [], (
        "not the bytes of an undisturbed run"
    )


def repeat(project: Path, undisturbed: Path, stage: Stage, **variables: str) -> str:
    """Run `dvc repro` again after a fault; what it said as it made the same as in `undisturbed`."""
    with Reproduction(project, stage, **variables) as again:
        said = again.ended()
        assert again.dvc.returncode == 0, said
    assert_same(project, undisturbed, stage)
    return said
