"""Strike one tiny pipeline with seeded faults, one after another: `make torture FAULTS=60 SEED=0`.

A stage is made as if it had not run, it is disturbed while `dvc repro` makes it, and `dvc repro`
runs again as after `make repro`'s first step. A fault is survived where nothing of the first run
lives on, the second ends well, and every out and what DVC recorded of it are, byte for byte, those
of a run that nobody disturbed. The next fault meets what this one left. The stages are those that
keep finished cells, values or checkpoints, of each matrix the last; a wrong file, whose time and
size are the right one's, is given to the stage that judges claims too.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from lib.work.command import run
from tests.faults.harness import (
    Reproduction,
    assert_same,
    keeps_cells,
    recorded,
    remove,
    scratch_holds,
)
from tests.pipeline.project import ROOT, Stage, duplicate, stages
from tests.pipeline.tiny import run_tiny
from tools import unlock

SCRATCH = Path(".dvc", "tmp", "scratch")
KILLS = {
    "SIGKILL to the stage": ("stage", signal.SIGKILL),
    "SIGKILL to a worker": ("worker", signal.SIGKILL),
    "SIGKILL to DVC": ("dvc", signal.SIGKILL),
    "SIGKILL to all": ("all", signal.SIGKILL),
    "SIGTERM to DVC": ("dvc", signal.SIGTERM),
    "Ctrl-C": ("all", signal.SIGINT),
}
MOVED = "folder moved"
RESTORED = "wrong file, then the right one"
STOPPED = "stopped and continued"
UPGRADED = "package upgraded"
OTHERS = (
    "bit flip in scratch",
    "bit flip in data",
    "DVC's file cut short",
    "two at once",
    MOVED,
    RESTORED,
    STOPPED,
    UPGRADED,
)
JUDGES = "claims"

Moment = Callable[[Reproduction, random.Random], bool]  # waits for it; whether it came


def main(faults: int = 60, seed: int = 0) -> None:
    """Print a line a fault, and the table."""
    with TemporaryDirectory() as folder:
        undisturbed = Path(folder) / "undisturbed"
        run_tiny(undisturbed, *(stage.name for stage in disturbed(ROOT)), JUDGES)
        project = duplicate(undisturbed, Path(folder) / "project")
        found = []
        try:
            for outcome in torment(undisturbed, project, faults, seed):
                found.append(outcome)
                kind, stage, said = outcome
                print(
                    f"{len(found)} of {faults}: {kind}: {stage}: {said or 'survived'}", flush=True
                )
        except KeyboardInterrupt:
            print(f"stopped after {len(found)} of {faults} faults")
    print(f"\n{table(found)}\n")
    for kind, stage, said in found:
        if said:
            print(f"lost: {kind}: {stage}: {said}")
    sys.exit(any(said for *_, said in found))


def disturbed(folder: Path) -> list[Stage]:
    """The stages that keep what they have computed, of each matrix the last."""
    keep = [
        stage
        for stage in stages(folder)
        if keeps_cells(stage) or stage.module == "stages.vision.train"
    ]
    return list({stage.name.partition("@")[0]: stage for stage in keep}.values())


def torment(
    undisturbed: Path, project: Path, n_faults: int, seed: int
) -> Iterator[tuple[str, str, str]]:
    """Yield so many faults that struck: kind, stage, and what was lost, or nothing."""
    kinds = [*KILLS, *OTHERS]
    struck = drawn = 0
    while struck < n_faults:
        draw = random.Random(f"{seed} {drawn}")
        drawn += 1
        kind = kinds[struck % len(kinds)]
        victims = disturbed(project)
        if kind == RESTORED:
            victims += [stage for stage in stages(project) if stage.name == JUDGES]
        stage = draw.choice(victims)
        forget(project, stage, scratch=draw.random() < 0.75)
        said = ""
        try:
            if not strike(undisturbed, project, kind, stage, draw):
                continue  # the run had ended before
        except Exception as error:  # whatever goes wrong is a loss
            said = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            remove(project)
            duplicate(undisturbed, project)
        struck += 1
        yield kind, stage.name, said


def forget(project: Path, stage: Stage, scratch: bool) -> None:
    """Make it as if the stage had not run: no out of it stays, nothing that DVC remembers and,
    where told, no scratch.
    """
    lock = recorded(project)
    lock["stages"].pop(stage.name, None)
    (project / "dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False), encoding="utf-8")
    gone = [".dvc/cache/runs", *(out.path for out in stage.outs), *([SCRATCH] if scratch else [])]
    for path in gone:
        remove(project / path)


def strike(undisturbed: Path, project: Path, kind: str, stage: Stage, draw: random.Random) -> bool:
    """Strike with one fault, and run again after it; whether it struck. Raises `AssertionError` for
    a loss.
    """
    struck = True
    foreign: dict[Path, int] = {}
    at = project
    if kind in KILLS:
        struck = kill(project, stage, *KILLS[kind], draw)
    elif kind == "two at once":
        with Reproduction(project, stage) as one:
            time.sleep(3 * draw.random())
            with Reproduction(project, stage) as other:
                one.ended()
                other.ended()
    elif kind == MOVED:
        struck = kill(project, stage, "all", signal.SIGKILL, draw)
        at = project.rename(project.with_name("moved"))
    elif kind == RESTORED:
        struck = restore(undisturbed, project, stage, draw)
    elif kind == STOPPED:
        struck = stop(project, stage, draw)
    elif kind == UPGRADED:
        begin = time.time_ns()
        upgraded = {"PYTHONPATH": str(another_package(project.with_name("upgraded")))}
        struck = kill(project, stage, "all", signal.SIGKILL, draw, at_a_cell, **upgraded)
        foreign = {lock: used for lock, used in locks(project).items() if used >= begin}
    elif kind == "bit flip in scratch":
        kill(project, stage, "all", signal.SIGKILL, draw, at_a_cell)
        struck = flip(draw, list((project / SCRATCH).glob("*/*/*")))
    elif kind == "bit flip in data":
        data = [project / dep for dep in stage.deps if dep.startswith("data/")]
        struck = flip(draw, [file for path in data for file in (path, *path.rglob("*"))])
    else:
        cut(draw, [project / name for name in unlock.CHECKS])
    try:
        if not struck:
            return False
        unlock.main(at)
        with Reproduction(at, stage) as again:
            said = again.ended()
        assert not again.dvc.returncode, f"the second run failed: {said[-300:]}"
        assert_same(at, undisturbed, stage)
        used = [lock for lock, before in foreign.items() if locks(project)[lock] != before]
        assert not used, f"cells of another package were used: {used}"
    finally:
        if at != project:
            at.rename(project)
    return True


def restore(undisturbed: Path, project: Path, stage: Stage, draw: random.Random) -> bool:
    """Let the stage run on a file of which one bit is another, as none of DVC's looks can tell, and
    put the right one back; whether there was a file.

    The run fails, or what it writes is right: not all of a file is read. Raises `AssertionError`
    where it writes anything else.
    """
    read = [project / dep for dep in stage.deps if dep.startswith(("data/", "metrics/"))]
    files = [file for path in read for file in (path, *path.rglob("*")) if file.is_file()]
    before = {file: (file.read_bytes(), file.stat()) for file in files}
    if not flip(draw, files):
        return False
    for file, (_, stat) in before.items():
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with Reproduction(project, stage, "--force", "--single-item") as wrong:
        wrong.ended()
    for file, (content, stat) in before.items():
        file.write_bytes(content)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    if not wrong.dvc.returncode:
        assert_same(project, undisturbed, stage)
    return True


def stop(project: Path, stage: Stage, draw: random.Random) -> bool:
    """Stop all processes of a run for some seconds, as a laptop that sleeps does; whether there
    were some. The run must end well.
    """
    with Reproduction(project, stage) as first:
        if not draw.choice(MOMENTS)(first, draw):
            first.ended()
            return False
        found = first.processes()
        for signal_sent in (signal.SIGSTOP, signal.SIGCONT):
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, signal_sent)
            if signal_sent == signal.SIGSTOP:
                time.sleep(draw.uniform(0.5, 3))
        said = first.ended()
    assert not first.dvc.returncode, f"a run that was stopped failed: {said[-300:]}"
    return bool(found)


def another_package(folder: Path) -> Path:
    """A folder in which a package that computes seems to have another version."""
    about = folder / "numpy-99.0.dist-info" / "METADATA"
    about.parent.mkdir(parents=True, exist_ok=True)
    about.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 99.0\n")
    return folder


def locks(project: Path) -> dict[Path, int]:
    """When each cell of scratch was used last, by the file of its lock."""
    return {lock: lock.stat().st_mtime_ns for lock in (project / SCRATCH).glob("*/*.lock")}


def kill(
    project: Path,
    stage: Stage,
    victim: str,
    with_signal: int,
    draw: random.Random,
    moment: Moment | None = None,
    **variables: str,
) -> bool:
    """Run the stage, and kill at a moment; whether there was something to kill."""
    with Reproduction(project, stage, **variables) as first:
        if not (moment or draw.choice(MOMENTS))(first, draw):
            first.ended()
            return False
        found = first.processes() if victim == "all" else first.find(victim)[:1]  # pyright: ignore[reportArgumentType]
        for process in found:
            try:
                os.kill(process.pid, with_signal)
            except ProcessLookupError:
                found = []
        first.ended()
        return bool(found)


def at_its_start(first: Reproduction, draw: random.Random) -> bool:
    return first.reached(lambda: first.find("stage"))


def at_a_cell(first: Reproduction, draw: random.Random) -> bool:
    """The moment at which one to three files in scratch are whole that were not there before."""
    pattern = "*/*/*.safetensors"
    before = len(list((first.project / SCRATCH).glob(pattern)))
    more = scratch_holds(pattern, before + draw.randint(1, 3))
    return first.reached(lambda: more(first.project))


def after_seconds(first: Reproduction, draw: random.Random) -> bool:
    end = time.monotonic() + draw.uniform(0, 4)
    return at_its_start(first, draw) and first.reached(lambda: time.monotonic() > end)


def as_it_works(first: Reproduction, draw: random.Random) -> bool:
    """The moment at which the stage has workers; on few cores, or with one cell, it never has."""
    return first.reached(lambda: first.find("worker"))


def as_dvc_saves(first: Reproduction, draw: random.Random) -> bool:
    return at_its_start(first, draw) and first.reached(lambda: not first.find("stage"))


MOMENTS: list[Moment] = [at_its_start, at_a_cell, after_seconds, as_it_works, as_dvc_saves]


def flip(draw: random.Random, files: list[Path]) -> bool:
    """Flip one bit of one file; whether there was a file."""
    files = sorted(file for file in files if file.is_file() and file.stat().st_size)
    if files:
        file = draw.choice(files)
        content = bytearray(file.read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        file.write_bytes(content)
    return bool(files)


def cut(draw: random.Random, files: list[Path]) -> None:
    """Cut one of the files short, as when DVC is killed while it writes it."""
    file = draw.choice(files)
    whole = file.read_bytes() if file.exists() else b'{"write": {"/a": {"pid": 1, "cmd": "dvc"}}}'
    file.write_bytes(whole[: draw.randrange(len(whole))])


def table(found: list[tuple[str, str, str]]) -> str:
    """How many faults of each kind were tried, survived and lost."""
    lines = ["| fault | tried | survived | lost |", "|---|---|---|---|"]
    for kind in [*KILLS, *OTHERS, "all"]:
        lost = [bool(said) for of, _, said in found if kind in (of, "all")]
        if lost:
            lines.append(f"| {kind} | {len(lost)} | {lost.count(False)} | {lost.count(True)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    run(main, environment=True)
