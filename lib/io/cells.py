"""Work that is kept: cells of a stage, pure functions of params and files, whose tables an earlier run has computed.

A cell is computed once for as long as its arguments, the files that they name and the code stay what they are: a
problem, scale or seed that is added, or one that changes, costs nothing for the others. Tables are read back from
scratch in every case, so that a kept cell and a new one give the same bytes.
"""

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib.io.compute import spread
from lib.io.files import InputError, sha256
from lib.io.scratch import Scratch, code_digest
from lib.io.tables import read_table, write_table

Tables = dict[str, pd.DataFrame]
Job = tuple[Any, ...]  # a function that gives tables by name, and its arguments


def spread_cells(
    jobs: Mapping[str, Sequence[Job]], *, stage: str, n_processes: int, label: str, unit: str
) -> dict[str, list[Tables]]:
    """The tables of every job (function, *arguments), one list per kind; those that scratch has are not computed.

    A path among the arguments counts by the content of its file, a dataclass by its values.
    """
    code = code_digest()
    digests: dict[Path, str] = {}

    def described(value: Any) -> Any:
        if isinstance(value, Path):
            if value not in digests:
                digests[value] = sha256(value)
            return digests[value]
        return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value

    every = [job for alike in jobs.values() for job in alike]
    cells = [
        (stage, {"code": code, "function": job[0].__name__, "arguments": [described(x) for x in job[1:]]}, *job)
        for job in every
    ]
    done = iter(list(spread(_kept, cells, n_processes=n_processes, label=label, unit=unit)))
    return {kind: [_tables(next(done)) for _ in alike] for kind, alike in jobs.items()}


def joined(parts: Sequence[Tables], name: str) -> pd.DataFrame:
    """The tables of that name of all cells, one after another; those without rows give their columns alone."""
    tables = [part[name] for part in parts if name in part]
    filled = [table for table in tables if len(table)]
    if not tables:
        return pd.DataFrame()
    return pd.concat(filled, ignore_index=True) if filled else tables[0]


def _kept(stage: str, key: Mapping[str, Any], function: Callable[..., Tables], *arguments: Any) -> Path:
    """The folder of a cell, whose tables are computed where it has none."""
    with Scratch(stage, key) as scratch:
        found = scratch.load("done")
        if found is not None and not _whole(scratch.folder, found[1]["files"]):
            warnings.warn(f"scratch: {scratch.folder} is altered; its cell is computed again", stacklevel=2)
            found = None
        if found is None:
            digests = {}
            for name, table in function(*arguments).items():
                write_table(table, scratch.folder / f"{name}.parquet")
                digests[f"{name}.parquet"] = sha256(scratch.folder / f"{name}.parquet")
            scratch.save("done", {}, {"files": digests, "key": json.loads(json.dumps(key))})
        return scratch.folder


def _whole(folder: Path, digests: Mapping[str, str]) -> bool:
    files = [(folder / name, digest) for name, digest in digests.items()]
    return all(file.is_file() and sha256(file) == digest for file, digest in files)


def _tables(folder: Path) -> Tables:
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise InputError(f"{folder}: wanted the tables of a finished cell, got none")
    return {file.stem: read_table(file) for file in files}
