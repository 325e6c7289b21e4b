"""Strike one tiny pipeline with seeded faults, one after another: `make torture FAULTS=60 SEED=0`.

A stage is made as if it had not run, it is disturbed while `dvc repro` makes it, and `dvc repro`
runs again as after `make repro`'s first step. A fault is survived where nothing of the first run
lives on, the second ends well, and every out and what DVC recorded of it are, byte for byte, those
of a run that nobody disturbed. The next fault meets what this one left. The stages are those that
keep finished cells, values or checkpoints, of each matrix the last.

Code or a param that is edited while a stage runs stays edited for the next run, whose outs must be
those of a run of the edit from nothing. Then the edit is undone, and what the old code and params
had finished is used again.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import yaml

from lib.work.command import run
from tests.faults.harness import Reproduction, keeps_cells, recorded, remove
from tests.pipeline.project import (
    PYTHON,
    Stage,
    checkout,
    commit,
    contents,
    dvc,
    environment,
    one_core,
    params_of,
    stages,
)
from tests.pipeline.tiny import make_tiny
from tools import unlock

FLOATS = "{name: 1.001 * frame[name] for name in frame.select_dtypes('floating')}"
# code of every stage, and an edit that shows in all tables: a text and its replacement
EDITED = Path("lib", "files", "tables.py")
EDIT = ("from_pandas(frame, ", f"from_pandas(frame.assign(**{FLOATS}), ")
ALONE = "--single-item"  # not also the stages before it that load the edited code
SCRATCH = Path(".dvc", "tmp", "scratch")
KILLS = {
    "SIGKILL to the stage": ("stage", signal.SIGKILL),
    "SIGKILL to a worker": ("worker", signal.SIGKILL),
    "SIGKILL to DVC": ("dvc", signal.SIGKILL),
    "SIGKILL to all": ("all", signal.SIGKILL),
    "SIGTERM to DVC": ("dvc", signal.SIGTERM),
    "Ctrl-C": ("all", signal.SIGINT),
}
EDITS = ("code edited", "param edited")
OTHERS = (
    "disk full",
    "bit flip in scratch",
    "bit flip in data",
    "DVC's file cut short",
    "two at once",
    *EDITS,
)
LONGEST = 120.0  # seconds that a run may take, on a loaded machine
# seconds after which a process of a disturbed run that is alive is an orphan, where it had the time
LINGERS = 20.0
NEEDED = 5.0  # CPU seconds in which a disturbed run surely ends; it takes about one
LOOKS = 0.05  # seconds between looks at what is alive, each of which goes through all processes
FREE = (0, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20)  # bytes that are left on a full disk


class Lost(Exception):  # noqa: N818 (it is an outcome)
    """What a fault has cost."""


@dataclass
class Pipeline:
    """A project on which `dvc repro` has run, and what it then held of each stage."""

    folder: Path
    listed: list[Stage]
    outs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    entries: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lock = recorded(self.folder)["stages"]
        for stage in self.listed:
            self.outs[stage.name] = contents(self.folder, [out.path for out in stage.outs])
            self.entries[stage.name] = lock[stage.name]

    def forget(self, stage: Stage, scratch: bool) -> None:
        """As if the stage had not run: no out of it, nothing that DVC remembers and, where told, no
        scratch.
        """
        lock = recorded(self.folder)
        lock["stages"].pop(stage.name, None)
        (self.folder / "dvc.lock").write_text(
            yaml.safe_dump(lock, sort_keys=False), encoding="utf-8"
        )
        gone = [
            ".dvc/cache/runs",
            *(out.path for out in stage.outs),
            *([SCRATCH] if scratch else []),
        ]
        for path in gone:
            remove(self.folder / path)

    def check(self, stage: Stage, folder: Path) -> None:
        """Raise `Lost` where the stage's outs, or what DVC recorded, are not those of an
        undisturbed run.
        """
        compare(made_of(stage, folder), (self.outs[stage.name], self.entries[stage.name]))


def made_of(stage: Stage, folder: Path) -> tuple[dict[str, bytes], Any]:
    """The stage's outs, and what DVC recorded of it."""
    outs = contents(folder, [out.path for out in stage.outs])
    return outs, recorded(folder)["stages"].get(stage.name)


def compare(made: tuple[dict[str, bytes], Any], wanted: tuple[dict[str, bytes], Any]) -> None:
    """Raise `Lost` where two runs have not made, or recorded, the same."""
    outs = made[0]
    of_wanted = wanted[0]
    differ = sorted(name for name in {*outs, *of_wanted} if outs.get(name) != of_wanted.get(name))
    if differ:
        raise Lost(f"other bytes in {', '.join(differ[:3])}")
    if made[1] != wanted[1]:
        raise Lost("dvc.lock says something else")


def main(faults: int = 60, seed: int = 0) -> None:
    """Print a line a fault, and the table."""
    begin = time.monotonic()
    cpu = _cpu()
    with TemporaryDirectory() as folder:
        pipeline = made(Path(folder) / "pipeline")
        print(f"{len(pipeline.listed)} stages made in {time.monotonic() - begin:.0f} s", flush=True)
        begun = time.monotonic()
        found = []
        try:
            for number, outcome in enumerate(torment(pipeline, faults, seed), 1):
                found.append(outcome)
                kind, stage, said = outcome
                print(f"{number} of {faults}: {kind}: {stage}: {said or 'survived'}", flush=True)
        except KeyboardInterrupt:
            print(f"stopped after {len(found)} of {faults} faults")
    print(f"\n{table(found)}\n")
    print(
        f"{len(found)} faults, seed {seed}: {time.monotonic() - begun:.0f} s, {_cpu() - cpu:.0f} "
        "CPU seconds in all"
    )
    if not namespaces():
        print("disk full: not tried, as this system lets no user mount a disk of its own")
    for kind, stage, said in found:
        if said:
            print(f"lost: {kind}: {stage}: {said}")
    sys.exit(any(said for *_, said in found))


def made(folder: Path) -> Pipeline:
    """The tiny pipeline up to the stages that are disturbed."""
    checkout(folder)
    make_tiny(folder)
    commit(folder, "Tiny params")
    chosen = disturbed(folder)
    with one_core():  # as the tests make it
        dvc("repro", *(stage.name for stage in chosen), at=folder)
    return Pipeline(folder, chosen)


def disturbed(folder: Path) -> list[Stage]:
    """The stages that keep what they have computed, of each matrix the last."""
    keep = [
        stage
        for stage in stages(folder)
        if keeps_cells(stage) or stage.module == "stages.vision.train"
    ]
    return list({stage.name.partition("@")[0]: stage for stage in keep}.values())


def torment(pipeline: Pipeline, n_faults: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """So many faults that struck: kind, stage with moment, and what was lost, or nothing."""
    kinds = [*KILLS, *(kind for kind in OTHERS if kind != "disk full" or namespaces())]
    struck = drawn = 0
    never: set[tuple[str, str]] = set()  # kinds that found nothing to strike at some stage
    while struck < n_faults:
        draw = random.Random(f"{seed} {drawn}")
        kind = kinds[struck % len(kinds)]
        drawn = drawn + 1
        stage = draw.choice([stage for stage in pipeline.listed if (kind, stage.name) not in never])
        moment = draw.choice(moments(kind))
        where = f"{stage.name} {moment}".strip()
        pipeline.forget(stage, scratch=draw.random() < 0.75)
        try:
            if not strike(pipeline, kind, stage, moment, draw):
                never |= (
                    {(kind, stage.name)}
                    if kind in ("SIGKILL to a worker", "code edited")
                    else set()
                )
                continue  # the run had ended before
            said = ""
        except Exception as error:  # whatever goes wrong is a loss
            said = " ".join(f"{type(error).__name__}: {error}".split())[:400]
            again(pipeline, stage)
        struck += 1
        yield kind, where, said


def moments(kind: str) -> list[str]:
    """When a fault of that kind may strike: a worker is there for a part of a second, and no stage
    as DVC saves.
    """
    if kind in EDITS:
        return ["as it starts", "at a finished cell", "after seconds"]
    if kind not in KILLS:
        return [""]
    never = {"worker": set(MOMENT) - {"as it works"}, "stage": {"as it works", "as DVC saves"}}
    return [moment for moment in MOMENT if moment not in never.get(KILLS[kind][0], {"as it works"})]


def again(pipeline: Pipeline, stage: Stage) -> None:
    """After a loss, what the next fault begins with: the stage made anew from nothing."""
    for name in (".dvc/tmp/rwlock", ".dvc/tmp/lock"):
        remove(pipeline.folder / name)
    if not (pipeline.folder / "dvc.lock").exists():
        (pipeline.folder / "dvc.lock").write_text(
            yaml.safe_dump({"schema": "2.0", "stages": pipeline.entries})
        )
    pipeline.forget(stage, scratch=True)
    dvc("repro", stage.name, at=pipeline.folder, fails=None)


def strike(pipeline: Pipeline, kind: str, stage: Stage, moment: str, draw: random.Random) -> bool:
    """One fault, and the run after it; whether it struck. Raises `Lost`."""
    if kind == "disk full":
        fill_disk(pipeline, stage, draw.choice(FREE))
        return True
    struck = True
    if kind in KILLS:
        struck = kill(pipeline.folder, stage, *KILLS[kind], MOMENT[moment], draw)
    elif kind in EDITS:
        struck = edit(pipeline, stage, kind, moment, draw)
    elif kind == "two at once":
        two(pipeline.folder, stage, draw.random())
    elif kind == "bit flip in scratch":
        kill(pipeline.folder, stage, "all", signal.SIGKILL, at_a_cell, draw)
        struck = flip(draw, list((pipeline.folder / SCRATCH).glob("*/*/*")))
    elif kind == "bit flip in data":
        data = [pipeline.folder / dep for dep in stage.deps if dep.startswith("data/")]
        struck = flip(
            draw, [file for path in data for file in (path, *path.rglob("*")) if file.is_file()]
        )
    else:
        struck = cut(draw, [pipeline.folder / name for name in unlock.CHECKS])
    if not struck:
        return False
    unlock.main(pipeline.folder)
    with Reproduction(pipeline.folder, stage) as run_again:
        said = within(run_again, LONGEST)
    if run_again.dvc.returncode:
        raise Lost(f"the second run failed: {said[-300:]}")
    pipeline.check(stage, pipeline.folder)
    return True


def kill(
    folder: Path,
    stage: Stage,
    victim: str,
    with_signal: int,
    moment: Callable[..., bool],
    draw: random.Random,
) -> bool:
    """Run the stage, and kill at a moment; whether there was something to kill. Raises `Lost` where
    it lives on.
    """
    with Reproduction(folder, stage) as first:
        if not moment(first, draw):
            within(first, LONGEST)
            return False
        found = first.processes() if victim == "all" else first.find(victim)  # pyright: ignore[reportArgumentType]
        for process in found if victim == "all" else found[:1]:
            try:
                os.kill(process.pid, with_signal)
            except ProcessLookupError:
                found = []
        within(first, LINGERS if victim in ("all", "dvc") else LONGEST)
        return bool(found)


def within(reproduction: Reproduction, seconds: float) -> str:
    """What was said, once DVC and all that it started have ended; raises `Lost` where that takes
    longer.

    On a loaded machine seconds say little: whoever has not had `NEEDED` CPU seconds may have
    `LONGEST`.
    """
    begin = time.monotonic()
    before = {process.pid: _seconds(process) for process in reproduction.processes()}
    while reproduction.dvc.poll() is None or reproduction.processes():
        took = time.monotonic() - begin
        alive = reproduction.processes()
        had = {process.pid: _seconds(process) - before.get(process.pid, 0.0) for process in alive}
        if took > LONGEST or (took > seconds and sum(had.values()) > NEEDED):
            raise Lost(
                f"after {took:.0f} s these were alive: "
                f"{[_about(process, had[process.pid]) for process in alive]}"
            )
        time.sleep(LOOKS)
    return reproduction.said


def _seconds(process: psutil.Process) -> float:
    try:
        return sum(process.cpu_times()[:2])
    except psutil.Error:
        return 0.0


def _about(process: psutil.Process, had: float) -> str:
    """A process that should have ended: its command, its state and where it waits, and the CPU
    seconds that it had.
    """
    try:
        waits = Path(f"/proc/{process.pid}/wchan").read_text() if sys.platform == "linux" else ""
        return (
            f"{' '.join(process.cmdline()[:5])} ({process.status()} {waits}, {had:.1f} CPU s since)"
        )
    except (psutil.Error, OSError):
        return f"process {process.pid}, which has ended now"


def waits(true: Callable[[Reproduction], object]) -> Callable[[Reproduction], bool]:
    def until(first: Reproduction) -> bool:
        while first.dvc.poll() is None:
            if true(first):
                return True
            time.sleep(LOOKS)
        return False

    return until


starts = waits(lambda first: first.find("stage"))


def at_its_start(first: Reproduction, draw: random.Random) -> bool:
    return starts(first)


def at_a_cell(first: Reproduction, draw: random.Random) -> bool:
    """When one to three files in scratch are whole that were not there before."""
    wanted = draw.randint(1, 3)
    before = _whole(first.project)
    return waits(lambda first: len(_whole(first.project) - before) >= wanted)(first)


def after_seconds(first: Reproduction, draw: random.Random) -> bool:
    if not starts(first):
        return False
    end = time.monotonic() + draw.uniform(0, 4)
    return waits(lambda _: time.monotonic() > end)(first)


def as_it_works(first: Reproduction, draw: random.Random) -> bool:
    """When it has workers; on few cores, or with one cell, it never has."""
    return waits(lambda first: first.find("worker"))(first)


def as_dvc_saves(first: Reproduction, draw: random.Random) -> bool:
    return starts(first) and waits(lambda first: not first.find("stage"))(first)


MOMENT: dict[str, Callable[[Reproduction, random.Random], bool]] = {
    "as it starts": at_its_start,
    "at a finished cell": at_a_cell,
    "after seconds": after_seconds,
    "as it works": as_it_works,
    "as DVC saves": as_dvc_saves,
}


def _whole(project: Path) -> set[Path]:
    return set((project / SCRATCH).glob("*/*/*.safetensors"))


def two(folder: Path, stage: Stage, apart: float) -> None:
    """Two runs at once; one may find DVC's lock taken, and say so."""
    with Reproduction(folder, stage) as one:
        time.sleep(3 * apart)
        with Reproduction(folder, stage) as other:
            within(one, LONGEST)
            within(other, LONGEST)


def edit(pipeline: Pipeline, stage: Stage, kind: str, moment: str, draw: random.Random) -> bool:
    """Edit code or a param while the stage runs, and run it again; whether the edit shows, and
    there was time.

    Raises `Lost` where that gives something else than the edit does from nothing. What is left is
    the old file, and the cells of both.
    """
    file, edited = edited_file(pipeline.folder, stage, kind, draw)
    before = file.read_text(encoding="utf-8")
    if edited == before:
        return False  # it has no numbers
    dvc(
        "repro", stage.name, at=pipeline.folder
    )  # it needs what it reads, which an earlier fault may have forgotten
    try:
        file.write_text(edited, encoding="utf-8")
        pipeline.forget(stage, scratch=True)
        with Reproduction(pipeline.folder, stage, ALONE) as from_nothing:
            within(from_nothing, LONGEST)
        if from_nothing.dvc.returncode:
            return False  # the stage refuses it
        wanted = made_of(stage, pipeline.folder)
        if wanted[0] == pipeline.outs[stage.name]:
            return False  # it does not show
        file.write_text(before, encoding="utf-8")
        pipeline.forget(stage, scratch=True)
        with Reproduction(pipeline.folder, stage, ALONE) as first:
            struck = MOMENT[moment](first, draw)
            file.write_text(edited, encoding="utf-8")
            written = all((pipeline.folder / out.path).exists() for out in stage.outs)
            time.sleep(1)
            late = written and not first.find("stage")  # it may have looked for edits before
            within(first, LONGEST)
        if not struck or late:
            return False
        with Reproduction(pipeline.folder, stage, ALONE) as run_again:
            said = within(run_again, LONGEST)
        if run_again.dvc.returncode:
            raise Lost(f"the run of the edit failed: {said[-300:]}")
        compare(made_of(stage, pipeline.folder), wanted)
    finally:
        file.write_text(before, encoding="utf-8")
        pipeline.forget(stage, scratch=False)
    return True


def edited_file(folder: Path, stage: Stage, kind: str, draw: random.Random) -> tuple[Path, str]:
    """A file that the stage loads or reads, and its text after an edit."""
    if kind == "code edited":
        return folder / EDITED, (folder / EDITED).read_text(encoding="utf-8").replace(*EDIT)
    params = params_of(folder)
    found = [place for key in stage.params for place in numbers(params, key.split("."))]
    if found:
        section, key = draw.choice(found)
        section[key] += 1 if isinstance(section[key], int) else section[key] / 64
    return folder / "params.yaml", yaml.safe_dump(params, sort_keys=False)


def numbers(section: dict[str, Any], path: list[str]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where the numbers of a section are: the section that holds each, and its key."""
    key, *deeper = path
    value = section[key]
    if isinstance(value, dict):
        for name in deeper[:1] or value:
            yield from numbers(value, [name, *deeper[1:]])
    elif type(value) in (int, float):
        yield section, key


def flip(draw: random.Random, files: list[Path]) -> bool:
    """Flip one bit of one file; whether there was a file."""
    files = [file for file in files if file.stat().st_size]
    if not files:
        return False
    file = draw.choice(sorted(files))
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)
    return True


def cut(draw: random.Random, files: list[Path]) -> bool:
    """Cut one of the files short, as when DVC is killed while it writes it."""
    file = draw.choice(files)
    whole = (
        file.read_bytes()
        if file.exists()
        else b'{"write": {"/a": {"pid": 1, "cmd": "dvc repro"}}, "read": {}}'
    )
    file.write_bytes(whole[: draw.randrange(len(whole))])
    return True


FULL = """
mount -t tmpfs -o size=$SIZE none "$DISK" && cp -a "$PROJECT/." "$DISK" && cd "$DISK" || exit 9
"$PYTHON" -c '
import os, sys
file = open("filler", "wb", buffering=0)
try:
    while True: file.write(bytes(4096))
except OSError: pass
file.truncate(max(0, file.tell() - int(sys.argv[1])))
' "$FREE"
"$PYTHON" -m dvc repro "$STAGE"
echo "with a full disk: $?"
rm -f filler
"$PYTHON" -m tools.unlock && "$PYTHON" -m dvc repro "$STAGE" || exit 8
cp -a . "$RESULT"
"""


def fill_disk(pipeline: Pipeline, stage: Stage, free: int) -> None:
    """The project on a disk of its own, in a namespace of its own, with so many bytes left; then
    with room again.
    """
    size = sum(file.stat().st_size + 4096 for file in pipeline.folder.rglob("*") if file.is_file())
    with TemporaryDirectory() as folder:
        disk = Path(folder) / "disk"
        result = Path(folder) / "result"
        disk.mkdir()
        result.mkdir()
        given = {
            "PROJECT": pipeline.folder,
            "DISK": disk,
            "RESULT": result,
            "PYTHON": PYTHON,
            "STAGE": stage.name,
        }
        given |= {"FREE": free, "SIZE": 2 * size + (64 << 20)}
        done = subprocess.run(
            ["unshare", "-Urm", "sh", "-c", FULL],
            env=environment(disk, **{name: str(value) for name, value in given.items()}),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=3 * LONGEST,
            check=False,
        )
        if done.returncode:
            raise Lost(f"after a full disk ({free} bytes were free): {done.stdout[-300:]}")
        pipeline.check(stage, result)
        for path in (
            "dvc.lock",
            *(out.path for out in stage.outs),
        ):  # as if it had been done in the pipeline
            remove(pipeline.folder / path)
            (shutil.copytree if (result / path).is_dir() else shutil.copy2)(
                result / path, pipeline.folder / path
            )


def namespaces() -> bool:
    """Whether a user may mount a disk in a namespace here."""
    command = ["unshare", "-Urm", "sh", "-c", "mount -t tmpfs none /mnt"]
    return (
        bool(shutil.which("unshare"))
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


def table(found: list[tuple[str, str, str]]) -> str:
    """How many faults of each kind were tried, survived and lost."""
    lines = ["| fault | tried | survived | lost |", "|---|---|---|---|"]
    for kind in [*KILLS, *OTHERS, "all"]:
        outcomes = [bool(said) for of, _, said in found if kind in (of, "all")]
        if outcomes:
            lines.append(
                f"| {kind} | {len(outcomes)} | {outcomes.count(False)} | {outcomes.count(True)} |"
            )
        elif kind == "disk full":
            lines.append(f"| {kind} | not tried | | |")
    return "\n".join(lines)


def _cpu() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    run(main, environment=True)
