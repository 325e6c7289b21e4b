"""Work that is kept: a cell is the result of a function for its arguments.

A cell is computed once, as long as its arguments, the files that they name, the code by which it is
computed, the packages and the kind of machine stay the same. So a problem, scale or seed that is
added or changed costs nothing for the others, and a run after a kill costs only what was cut off.
An edit of other code voids no cell. Every result is read back from scratch, so that a kept cell and
a new one give the same bytes.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from lib.files.files import InputError, clear, sha256
from lib.files.sources import changed, code_of, digest_of
from lib.files.tables import read_table, write_table
from lib.work.compute import spread
from lib.work.errors import stop_where_changed
from lib.work.live import Curves
from lib.work.machines import machine
from lib.work.progress import advance
from lib.work.scratch import Scratch, Tensors

LARGE = 1 << 24  # bytes of a file that takes long to read
SETTLED = 2  # seconds after which a file that is written again has another time
KEPT = 2  # checkpoints of a training: where the newest is broken, the one before is used
Tables = dict[str, pd.DataFrame]
Job = tuple[Any, ...]  # a function that gives tables by name, or a course, and its arguments
Row = dict[str, Any]
Saved = tuple[dict[str, Any], list[Row]]  # tensors by name, and rows that JSON can say, exactly
Keep = Callable[[str, Callable[[], Any]], Any]  # gives the value of a name, computed where it must
Kind = TypeVar("Kind", bound=Hashable)
Training = TypeVar("Training", bound=Hashable)


@dataclass(frozen=True)
class OnDisk:
    """A file, or the files of a folder, of which those of `LARGE` bytes or more are known by their
    state on disk, as reading them takes about as long as the work: by device, inode, size, and the
    times at which content and inode changed.

    A copy, and what is written again with the same content, is another file, whose cells are
    computed again. New content has a new time, and that of the inode no program can set, short of
    setting the clock; what was written in the last `SETTLED` seconds, when the clock of a file
    system may not have ticked since, is known by its content. Damage on the disk itself is not
    noticed, nor what another program writes into a page of memory that it has mapped and already
    changed, until the system stores that page.
    """

    place: Path


class Course(NamedTuple):
    """The result of a training: tables by name, and the states that it saved, in order."""

    tables: Tables
    states: list[Saved]


def key_of(function: Callable[..., Any], *arguments: Any, device: str = "cpu") -> dict[str, Any]:
    """A key of everything that the result of a function depends on.

    For a path among the arguments the content of its file or folder counts, for `OnDisk` their
    state, for a dataclass its values.
    """
    return {
        "code": code_of(function),
        "machine": machine(device),
        "function": function.__name__,
        "arguments": [_described(one) for one in arguments],
    }


def _described(value: Any) -> Any:
    if isinstance(value, Path):
        return _files(value, digest_of)
    if isinstance(value, OnDisk):
        return _files(value.place, _state_of)
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _files(place: Path, known: Callable[[Path], Any]) -> Any:
    """What is known of a file, or of every file of a folder."""
    if not place.is_dir():
        return known(place)
    files = sorted(file for file in place.rglob("*") if file.is_file())
    return {file.relative_to(place).as_posix(): known(file) for file in files}


def _state_of(file: Path) -> Any:
    """The state of a large file on disk; the digest of one that is small, or has just changed."""
    state = file.stat()
    changed_since = time.time() - max(state.st_mtime, state.st_ctime)
    if state.st_size < LARGE or changed_since < SETTLED:
        return digest_of(file)
    return [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]


class Cell(Scratch):
    """The folder of a cell, whose content was computed by the code that its key names.

    Raises `StoppedError` if code has changed, when the folder is entered and before it saves.
    """

    def __init__(self, stage: str, key: Mapping[str, Any]):
        super().__init__(stage, key)
        self.key = key

    def __enter__(self) -> "Cell":
        stop_where_changed(changed(self.key["code"]))
        super().__enter__()
        return self

    def save(self, name: str, tensors: Tensors, note: Mapping[str, Any]) -> None:  # noqa: D102
        stop_where_changed(changed(self.key["code"]))
        super().save(name, tensors, note)

    def keep(self, name: str, compute: Callable[[], Any]) -> Any:
        """The value of a name, which JSON can say; it is a unit of the progress bar."""
        name = sha256(name.encode())[:24]
        found = self.load(name)
        value = found[1]["value"] if found else compute()
        if found is None:
            self.save(name, {}, {"value": value})
        advance()
        return value

    def finish(self, result: Tables | Course) -> None:
        """Save the result of the function."""
        tables, states = result if isinstance(result, Course) else (result, None)
        digests = {}
        for name, table in tables.items():
            file = self.folder / f"{name}.parquet"
            write_table(table, file)
            digests[file.name] = sha256(file)
        for number, (tensors, rows) in enumerate(states or ()):
            in_order = [list(row.items()) for row in rows]
            self.save(_state(number), tensors, {"rows": in_order})
        n_states = None if states is None else len(states)
        key = json.loads(json.dumps(self.key))
        self.save("done", {}, {"files": digests, "states": n_states, "key": key})

    def result(self) -> Tables | Course | None:
        """The result of the function; None where it has not finished, or a file broke since."""
        done = self.load("done")
        if done is None:
            return None
        note = done[1]
        files = {self.folder / name: digest for name, digest in sorted(note["files"].items())}
        states = [self.load(_state(number)) for number in range(note["states"] or 0)]
        whole = all(file.is_file() and sha256(file) == digest for file, digest in files.items())
        if not whole or None in states:
            return None
        tables = {file.stem: read_table(file) for file in files}
        if note["states"] is None:
            return tables
        found = [(one[0], [dict(row) for row in one[1]["rows"]]) for one in states if one]
        return Course(tables, found)


def spread_cells(
    jobs: Mapping[Kind, Sequence[Job]],
    *,
    label: str,
    unit: str,
    size: Callable[..., int] | None = None,
    device: str = "cpu",
) -> dict[Kind, list[Any]]:
    """The result of every job (function, *arguments), in one list per kind; a kept result is not
    computed again.

    On a CPU each core has a process. The progress bar counts jobs, or the `size(*arguments)` by
    which each job advances it, where that is given.
    """
    every = [job for alike in jobs.values() for job in alike]
    sizes = [size(*arguments) if size else 0 for _, *arguments in every]
    places = [(stage_of(job[0]), key_of(*job, device=device)) for job in every]
    cells = [(*place, n, job) for place, n, job in zip(places, sizes, every, strict=True)]
    total = sum(sizes) if size else None
    list(spread(_kept, cells, device=device, label=label, unit=unit, total=total))
    found = (_read(*place) for place in places)
    return {kind: [next(found) for _ in alike] for kind, alike in jobs.items()}


@contextmanager
def kept(function: Callable[..., Any], *arguments: Any, device: str = "cpu") -> Iterator[Keep]:
    """The values of a cell, kept one by one: an interrupted function goes on after the last."""
    with Cell(stage_of(function), key_of(function, *arguments, device=device)) as cell:
        yield cell.keep


def stage_of(function: Callable[..., Any]) -> str:
    """The name of the module that has the function: `vision_cut` for stages/vision/cut.py, and
    `lib_checkpoints_gains` for lib/checkpoints/gains.py.
    """
    module = sys.modules[function.__module__]
    spec = module.__spec__  # `__main__` has the name that it was started by
    name = spec.name if spec else module.__name__
    return name.removeprefix("stages.").replace(".", "_")


def write_tables(folder: Path, found: Mapping[str, Sequence[Tables | Course]]) -> None:
    """Write every table of the cells, each joined over them, in place of the folder's tables."""
    cells = [cell for alike in found.values() for cell in alike]
    parts = [cell.tables if isinstance(cell, Course) else cell for cell in cells]
    clear(folder, "*.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(name for part in parts for name in part):
        write_table(joined(parts, name), folder / f"{name}.parquet")


def joined(parts: Sequence[Tables], name: str) -> pd.DataFrame:
    """The tables of that name as one; where none has a row, the columns alone."""
    tables = [part[name] for part in parts if name in part]
    filled = [table for table in tables if len(table)]
    if not tables:
        return pd.DataFrame()
    return pd.concat(filled, ignore_index=True) if filled else tables[0]


def _kept(stage: str, key: Mapping[str, Any], size: int, job: Job) -> None:
    """Compute a cell that is missing or not whole."""
    with Cell(stage, key) as cell:
        if cell.result() is not None:
            advance(size)
            return
        if cell.names("done"):
            said = f"scratch: {cell.folder} is altered; its cell is computed again"
            warnings.warn(said, stacklevel=2)
        function, *arguments = job
        cell.finish(function(*arguments))


def _read(stage: str, key: Mapping[str, Any]) -> Tables | Course:
    """The result of a finished cell."""
    with Cell(stage, key) as cell:
        found = cell.result()
    if found is None:
        raise InputError(f"{cell.folder}: wanted a finished cell, got one that broke: run again")
    return found


def _state(number: int) -> str:
    return f"state-{number:09d}"


class Checkpoints:
    """The files of a training in its cell: a snapshot with a row of numbers for each step to save,
    and its newest checkpoints; the rows are drawn as curves.
    """

    def __init__(self, cell: Scratch, steps: Sequence[int], curves: Curves):
        self._cell = cell
        self._steps = steps
        self._curves = curves
        self._pace = Pace()
        self._rows: dict[int, Row] = {}
        for step in steps:
            snapshot = cell.load(_snapshot(step))
            if snapshot is not None:
                self._rows[step] = snapshot[1]

    def complete(self) -> bool:
        """Whether every snapshot is there; if so, the curves are drawn again."""
        complete = list(self._rows) == list(self._steps)
        if complete:
            self._draw(self._steps[-1])
        return complete

    def save(self, step: int, tensors: Tensors, scores: Row) -> None:
        """Save the snapshot of a step, with a row of its scores, whose values are read here."""
        row = {"step": step, **{name: float(score) for name, score in scores.items()}}
        self._cell.save(_snapshot(step), tensors, row)
        self._curves.log(row)

    def steps(self) -> list[int]:
        """The steps of the checkpoints, the newest last."""
        return [int(name.split("-")[1]) for name in self._cell.names("checkpoint")]

    def load(self, step: int) -> dict[str, Any] | None:
        """The tensors of a step's checkpoint; None where it, or a snapshot up to it, is broken."""
        loaded = self._cell.load(_checkpoint(step))
        if loaded is None or any(saved not in self._rows for saved in self._steps if saved <= step):
            return None
        print(f"resumed at step {step}: {self._cell.folder}", file=sys.stderr, flush=True)
        self._draw(step)
        return loaded[0]

    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        return self._pace.due()

    def checkpoint(self, step: int, tensors: Tensors) -> None:
        """Save all that the training needs to go on; only the newest checkpoints are kept."""
        with self._pace:
            self._cell.save(_checkpoint(step), tensors, {"step": step})
            self._drop(self._cell.names("checkpoint")[:-KEPT])

    def end(self) -> None:
        """Remove the checkpoints: a training that has ended needs none."""
        self._drop(self._cell.names("checkpoint"))

    def _draw(self, last: int) -> None:
        for step, row in self._rows.items():
            if step <= last:
                self._curves.log(row)

    def _drop(self, names: list[str]) -> None:
        for name in names:
            self._cell.drop(name)


class Pace:
    """The pace of checkpoints: each is due 5 seconds, or thirty times the cost, after the last."""

    def __init__(self) -> None:
        self.cost = 0.0
        self.end = time.monotonic()

    def due(self) -> bool:
        """Whether a checkpoint is due."""
        return time.monotonic() - self.end > max(5.0, 30 * self.cost)

    def __enter__(self) -> None:
        self.start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.end = time.monotonic()
        self.cost = self.end - self.start


@contextmanager
def unfinished(
    trainings: Mapping[Training, tuple[Scratch, Curves]], steps: Sequence[int]
) -> Iterator[dict[Training, Checkpoints]]:
    """The checkpoints of the trainings that are not complete, until the `with` statement ends, when
    they are.
    """
    with ExitStack() as opened:
        found = {}
        for training, (cell, curves) in trainings.items():
            kept = Checkpoints(opened.enter_context(cell), steps, opened.enter_context(curves))
            if not kept.complete():
                found[training] = kept
        yield found
        for kept in found.values():
            kept.end()


def newest(trainings: Sequence[Checkpoints]) -> tuple[int, list[dict[str, Any]]] | None:
    """The newest step at which every training has a whole checkpoint, and the tensors of each."""
    steps = set.intersection(*(set(training.steps()) for training in trainings))
    for step in sorted(steps, reverse=True):
        found = [training.load(step) for training in trainings]
        if None not in found:
            return step, [tensors for tensors in found if tensors is not None]
    return None


def stacked(trainings: Mapping[int, Scratch], step: int) -> tuple[dict[str, Any], list[Row]]:
    """The snapshots of a step of several trainings: tensors stacked, and a row for each seed.

    Raises `InputError` where one broke since it was saved.
    """
    import torch

    weights: list[dict[str, Any]] = []
    rows: list[Row] = []
    for seed, training in trainings.items():
        with training as cell:
            snapshot = cell.load(_snapshot(step))
        if snapshot is None:
            raise InputError(f"{cell.folder}: a snapshot broke after training; run again")
        weights.append(snapshot[0])
        rows.append({"seed": seed, **snapshot[1]})
    return {name: torch.stack([one[name] for one in weights]) for name in weights[0]}, rows


def _checkpoint(step: int) -> str:
    return f"checkpoint-{step:09d}"


def _snapshot(step: int) -> str:
    return f"snapshot-{step:09d}"
