"""The cost of the pipeline itself: DVC, start-up, and the way from an edited figure module to the
new figure.

All is measured in temporary clones of the last commit, with params so small that almost only the
overhead is left, and beside an earlier commit with its own tiny params. The earlier one has fewer
stages, claims and figures. The shell that DVC starts for every command notes its time: what remains
of `dvc repro` is DVC's own.

`--full-beside COMMIT` measures the whole pipeline instead, on the params in git: that commit and
the last one run at once, each on one core, from nothing to the report.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.earlier import EARLIER
from benchmarks.harness import Row, Spread, Times, interleave, write_results
from lib.work.command import run

FIGURE_MODULE = "lib/vision/figures/ranks.py"
FIGURE_STAGE = "vision_plot@digits"
TRAINING = "stages.vision.train"

# The params and tables with which the project tests itself.
MAKE_TINY = """
import pathlib, sys
sys.path[:0] = [".", "tests/pipeline"]
import project, tiny
folder = pathlib.Path.cwd()
if hasattr(tiny, "make_tiny"):
    tiny.make_tiny(folder)
else:  # an earlier commit's
    project.set_params(folder, tiny.tiny(project.params_of(folder)))
    (folder / "dvc.lock").unlink()
"""

FULL_NOTE = "Both run at once, each on a core of its own; CPU time of a stage's commands."

TIMED_SHELL = """#!/bin/bash
exec 3>&2
TIMEFORMAT="$DVC_STAGE %R %U %S"
{ time /bin/sh "$@" 2>&3; } 2>> "$COMMAND_TIMES"
"""


@dataclass(frozen=True)
class Clone:
    """A clone of a repository with its own settings: nothing that it does reaches the original."""

    folder: Path
    environment: Mapping[str, str]

    @classmethod
    def of(cls, repository: Path, commit: str, folder: Path, *, tiny: bool = True) -> "Clone":
        """Clone a commit of `repository` into `folder`, where no stage has run.

        With tiny params, or with those in git.
        """
        folder.mkdir()
        _command(
            ["git", "clone", "--quiet", "--no-checkout", str(repository), "clone"],
            folder,
            os.environ,
        )
        _command(["git", "checkout", "--quiet", "--detach", commit], folder / "clone", os.environ)
        shell = folder / "timed-shell"
        shell.write_text(TIMED_SHELL)
        shell.chmod(0o755)
        # DVC may run this: what it told this process (DVC_ROOT!) must not reach the clone, nor
        # settings of Python.
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("DVC_", "PYTHON"))
        } | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "SHELL": str(shell),
            "COMMAND_TIMES": str(folder / "command-times"),
            "DVC_SITE_CACHE_DIR": str(folder / "site-cache"),
            "DVC_GLOBAL_CONFIG_DIR": str(folder / "config"),
            "DVC_SYSTEM_CONFIG_DIR": str(folder / "config"),
        }
        clone = cls(folder / "clone", environment)
        if tiny:
            clone.run("python", "-c", MAKE_TINY)
        else:
            (clone.folder / "dvc.lock").unlink()
        return clone

    def run(self, *command: str) -> str:
        return _command(command, self.folder, self.environment)

    def command_seconds(self) -> dict[str, np.ndarray]:
        """The wall and CPU time of each stage's commands since the last call."""
        log = Path(self.environment["COMMAND_TIMES"])
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        seconds = {}
        for stage, *times in map(str.split, lines):
            wall, user, system = map(float, times)
            name = stage.rpartition(":")[2]
            before = seconds.get(name, 0.0)  # of the commands before, where a stage has several
            seconds[name] = before + np.array([wall, user + system])
        return seconds


def _command(
    command: tuple[str, ...] | list[str], folder: Path, environment: Mapping[str, str]
) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"[
                -4000:
            ]
        )
    return done.stdout


class Cold:
    """Fresh clones of a commit, in each of which everything runs once."""

    def __init__(self, repository: Path, commit: str, rounds: int, folder: Path):
        folder.mkdir()
        self.clones = [Clone.of(repository, commit, folder / str(i)) for i in range(rounds)]
        self.stages: list[dict[str, np.ndarray]] = []

    def run(self) -> None:
        """Run everything in the next clone."""
        clone = self.clones[len(self.stages)]
        clone.run("dvc", "repro")
        self.stages.append(clone.command_seconds())

    def rows(self, of: str, total: Times) -> list[Row]:
        """The rows of the whole, of what is left of it for DVC, and of each stage's command."""
        names = list(self.stages[0])
        commands = np.array(
            [[seconds[name] for seconds in self.stages] for name in names]
        )  # stage, round, clock
        rest = (np.stack([total.wall, total.cpu], axis=-1) - commands.sum(0)) / len(names)
        return [
            _row(f"cold dvc repro{of}, {len(names)} stages", total.wall, total.cpu),
            _row(f"DVC itself{of}, a stage: cold less the commands", *rest.T),
            *(
                _row(f"command of {name}", *seconds.T)
                for name, seconds in zip(names, commands, strict=True)
            ),
        ]


def cold_runs(
    repository: Path, commit: str, rounds: int, folder: Path
) -> tuple[list[Row], Clone, Clone]:
    """Run everything in fresh clones, of a commit and of the earlier one; the rows and the last
    clone of each.
    """
    ours, earlier = (Cold(repository, of, rounds, folder / of) for of in (commit, EARLIER))
    times = interleave({"ours": ours.run, EARLIER: earlier.run}, rounds)
    whole, of_dvc, *commands = ours.rows("", times["ours"])
    rows = [whole, of_dvc, *earlier.rows(f" of {EARLIER}", times[EARLIER])[:2], *commands]
    return rows, ours.clones[-1], earlier.clones[-1]


def warm_runs(clone: Clone, earlier: Clone, rounds: int) -> list[Row]:
    """A repro with nothing to do, a figure after an edit, and what each command begins with."""

    def redraw() -> None:
        with (clone.folder / FIGURE_MODULE).open("a") as module:
            module.write("# edited\n")
        clone.run("dvc", "repro", FIGURE_STAGE)
        if list(clone.command_seconds()) != [FIGURE_STAGE]:
            raise RuntimeError(f"{FIGURE_MODULE}: wanted its edit to run {FIGURE_STAGE} alone")

    jobs: dict[str, Callable[[], Any]] = {
        "no-op dvc repro": lambda: clone.run("dvc", "repro"),
        f"no-op dvc repro of {EARLIER}": lambda: earlier.run("dvc", "repro"),
        f"edit {FIGURE_MODULE}, then dvc repro {FIGURE_STAGE}": redraw,
        "start of Python": lambda: clone.run("python", "-c", "pass"),
        f"import {TRAINING}": lambda: clone.run("python", "-c", f"import {TRAINING}"),
    }
    for job in jobs.values():  # warms up: bytecode, file caches
        job()
    times = interleave(jobs, rounds)
    return [_row(name, measured.wall, measured.cpu) for name, measured in times.items()]


def full_run(clone: Clone, core: int) -> dict[str, float]:
    """The CPU seconds of each stage, from nothing to the report, on this core alone."""
    os.sched_setaffinity(0, {core})  # of this thread and the processes that it starts
    clone.run("dvc", "repro")
    return {name: float(cpu) for name, (_, cpu) in clone.command_seconds().items()}


def full_runs(repository: Path, commit: str, beside: str, folder: Path) -> list[Row]:
    """The whole pipeline of two commits at once, each on the params that it has in git."""
    commits = (commit, beside)
    clones = [Clone.of(repository, of, folder / of, tiny=False) for of in commits]
    with ThreadPoolExecutor(len(clones)) as both:
        ours, theirs = both.map(full_run, clones, sorted(os.sched_getaffinity(0)))
    families = {path.parent.name for path in Path("stages").glob("*/__init__.py")}
    whole = f"all stages: {len(ours)}, and {len(theirs)} beside"
    rows = [{"what": whole} | _seconds(sum(ours.values()), sum(theirs.values()))]
    for family in sorted(families):
        of = [sum(one[name] for name in one if name.startswith(family)) for one in (ours, theirs)]
        rows.append({"what": f"stages of {family}"} | _seconds(*of))
    names = sorted(ours | theirs)
    rows += [{"what": name} | _seconds(ours.get(name, 0), theirs.get(name, 0)) for name in names]
    return rows


def _seconds(ours: float, theirs: float) -> Row:
    percent = round(100 * ours / theirs) if theirs else None
    return {"cpu_s": round(ours), "cpu_s_beside": round(theirs), "percent": percent}


def _row(what: str, wall: np.ndarray, cpu: np.ndarray) -> Row:
    return {"what": what, "cpu_s": Spread.of(cpu), "wall_s": Spread.of(wall)}


def main(results: Path, cold_rounds: int = 2, rounds: int = 5, full_beside: str = "") -> None:
    """FULL_BESIDE: a commit; the whole pipeline is measured beside it, in place of the overhead."""
    repository = Path.cwd()
    commit = _command(["git", "rev-parse", "HEAD"], repository, os.environ).strip()
    if full_beside:
        with tempfile.TemporaryDirectory() as folder:
            rows = full_runs(repository, commit, full_beside, Path(folder))
        what = f"The whole pipeline, beside {full_beside}"
        write_results(results, what, rows, 1, ["dvc", "torch"], notes=[FULL_NOTE])
        return
    with tempfile.TemporaryDirectory() as folder:
        cold, ours, earlier = cold_runs(repository, commit, cold_rounds, Path(folder))
        warm = warm_runs(ours, earlier, rounds)
    write_results(
        results,
        "The pipeline on tiny params, in a clone",
        [*cold, *warm],
        rounds,
        ["dvc", "torch", "pandas", "matplotlib"],
        notes=[
            f"Cold: {cold_rounds} rounds, each in a fresh clone. An import includes Python's "
            "start; CPU time is of all "
            f"processes. The goals beside {EARLIER} are 75 % of its CPU time cold and 70 % with "
            "nothing to do.",
        ],
    )


if __name__ == "__main__":
    run(main)
