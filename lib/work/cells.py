"""Work that is kept: cells of a stage, pure functions of params and files, whose results an earlier
run has computed.

A cell is computed once for as long as its arguments, the files that they name, the code, the
packages that compute and the kind of machine stay what they are: a problem, scale or seed that is
added, or one that changes, costs nothing for the others, and a run after a kill costs what was cut
off. Results are read back from scratch in every case, so that a kept cell and a new one give the
same bytes.
"""

import json
import sys
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import pandas as pd

from lib.files.files import InputError, clear, sha256
from lib.files.tables import read_table, write_table
from lib.training.devices import kind_of
from lib.work.compute import n_parallel, spread
from lib.work.machines import machine
from lib.work.progress import advance
from lib.work.scratch import Scratch, code_digest

Kind = TypeVar("Kind", bound=Hashable)
Tables = dict[str, pd.DataFrame]
Job = tuple[Any, ...]  # a function that gives tables by name, or a course, and its arguments
Saved = tuple[
    dict[str, Any], list[dict[str, Any]]
]  # tensors by name, and rows that JSON can say, exactly


class Course(NamedTuple):
    """What a training gives: tables by name, and the states that it saved, in order."""

    tables: Tables
    states: list[Saved]


def spread_cells(
    jobs: Mapping[Kind, Sequence[Job]],
    *,
    label: str,
    unit: str,
    size: Any = None,
    device: str = "cpu",
    n_processes: int | None = None,
) -> dict[Kind, list[Any]]:
    """What every job (function, *arguments) gives, one list per kind; what scratch has is not
    computed.

    On a CPU each core has a process, where `n_processes` names no other number. A path among the
    arguments counts by the content of its file or folder, a dataclass by its values. The progress
    bar counts jobs or, where `size(*arguments)` says how much a job advances by itself, that.
    """
    digests: dict[Path, str] = {}

    def described(value: Any) -> Any:
        if isinstance(value, Path):
            if value not in digests:
                digests[value] = _digest(value)
            return digests[value]
        return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value

    def key_of(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        values = [described(one) for one in arguments]
        return {**made_by(function, device), "function": function.__name__, "arguments": values}

    every = [job for alike in jobs.values() for job in alike]
    keys = [key_of(*job) for job in every]
    sizes = [size(*job[1:]) if size else 0 for job in every]
    stages = [stage_of(job[0]) for job in every]
    cells = list(zip(stages, keys, sizes, every, strict=True))
    total = sum(sizes) if size else None
    computed = spread(
        _kept,
        cells,
        n_processes=n_processes or n_parallel(kind_of(device)),
        device=device,
        label=label,
        unit=unit,
        total=total,
    )
    list(computed)
    found = (_read(stage, key) for stage, key in zip(stages, keys, strict=True))
    return {kind: [next(found) for _ in alike] for kind, alike in jobs.items()}


class Keep(Protocol):
    """Gives the value of a key, which it computes where no earlier call has.

    A value is what JSON can say. Each is a unit of the progress bar.
    """

    def __call__(self, key: str, compute: Callable[[], Any]) -> Any: ...  # noqa: D102


@contextmanager
def kept(
    function: Callable[..., Any],
    files: Sequence[Path],
    arguments: Mapping[str, Any],
    device: str = "cpu",
) -> Iterator[Keep]:
    """A cell whose values are kept one by one: what an interrupted `function` has computed, an
    equal call goes on from.
    """
    key = {**made_by(function, device), **arguments, "files": [sha256(file) for file in files]}
    with Scratch(stage_of(function), key) as scratch:

        def keep(key: str, compute: Callable[[], Any]) -> Any:
            name = sha256(key.encode())[:24]
            found = scratch.load(name)
            value = found[1]["value"] if found is not None else compute()
            if found is None:
                scratch.save(name, {}, {"value": value})
            advance()
            return value

        yield keep


def made_by(function: Callable[..., Any], device: str) -> dict[str, Any]:
    """What a cell's key has beside its arguments: the function's code, packages and machine."""
    return {"code": code_digest(function), "machine": machine(device)}


def stage_of(function: Callable[..., Any]) -> str:
    """The name of the stage that has the function: `vision_cut` of stages/vision/cut.py."""
    module = sys.modules[function.__module__]
    spec = module.__spec__  # `__main__` has the name that it was started by
    name = spec.name if spec else module.__name__
    return name.removeprefix("stages.").replace(".", "_")


def joined(parts: Sequence[Tables], name: str) -> pd.DataFrame:
    """The tables of that name of all cells, one after another; those without rows give their
    columns alone.
    """
    tables = [part[name] for part in parts if name in part]
    filled = [table for table in tables if len(table)]
    if not tables:
        return pd.DataFrame()
    return pd.concat(filled, ignore_index=True) if filled else tables[0]


def write_tables(folder: Path, found: Mapping[str, Sequence[Tables | Course]]) -> None:
    """Write every table of the cells, each joined over them, in place of the folder's tables."""
    cells = [cell for alike in found.values() for cell in alike]
    parts = [cell.tables if isinstance(cell, Course) else cell for cell in cells]
    clear(folder, "*.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys(name for part in parts for name in part):
        write_table(joined(parts, name), folder / f"{name}.parquet")


def _kept(stage: str, key: Mapping[str, Any], size: int, job: Job) -> None:
    """Compute a cell where scratch has none that is whole."""
    with Scratch(stage, key) as scratch:
        found = scratch.load("done")
        if found is not None and not _whole(scratch, found[1]):
            warnings.warn(
                f"scratch: {scratch.folder} is altered; its cell is computed again", stacklevel=2
            )
            found = None
        if found is not None:
            advance(size)
            return
        function, *arguments = job
        result = function(*arguments)
        tables, states = result if isinstance(result, Course) else (result, None)
        digests = {}
        for name, table in tables.items():
            write_table(table, scratch.folder / f"{name}.parquet")
            digests[f"{name}.parquet"] = sha256(scratch.folder / f"{name}.parquet")
        for number, (tensors, rows) in enumerate(states or ()):
            scratch.save(
                _state(number), tensors, {"rows": [list(row.items()) for row in rows]}
            )  # in order
        n_states = None if states is None else len(states)
        scratch.save(
            "done", {}, {"files": digests, "states": n_states, "key": json.loads(json.dumps(key))}
        )


def _whole(scratch: Scratch, note: Mapping[str, Any]) -> bool:
    files = [(scratch.folder / name, digest) for name, digest in note["files"].items()]
    states = (scratch.load(_state(number)) for number in range(note["states"] or 0))
    return (
        all(file.is_file() and sha256(file) == digest for file, digest in files)
        and None not in states
    )


def _read(stage: str, key: Mapping[str, Any]) -> Tables | Course:
    """What a finished cell gives."""
    with Scratch(stage, key) as scratch:
        done = scratch.load("done")
        if done is None:
            raise InputError(
                f"{scratch.folder}: wanted a finished cell, got none: it broke meanwhile; run again"
            )
        tables = {
            Path(name).stem: read_table(scratch.folder / name) for name in sorted(done[1]["files"])
        }
        if done[1]["states"] is None:
            return tables
        states = [scratch.load(_state(number)) for number in range(done[1]["states"])]
        if None in states:
            raise InputError(
                f"{scratch.folder}: wanted its states whole, got one that broke meanwhile; run "
                "again"
            )
        return Course(
            tables,
            [
                (tensors, [dict(row) for row in note["rows"]])
                for tensors, note in filter(None, states)
            ],
        )


def _state(number: int) -> str:
    return f"state-{number:09d}"


def _digest(path: Path) -> str:
    """That of a file's content, or of the names and contents of all files in a folder; of nothing,
    where none is.
    """
    if not path.is_dir():
        return sha256(path) if path.exists() else "none"
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return sha256(
        json.dumps([[file.relative_to(path).as_posix(), sha256(file)] for file in files]).encode()
    )
