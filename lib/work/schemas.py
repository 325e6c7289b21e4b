"""The columns of tables that stages exchange: what each holds, said once for writer and readers.

A schema checks what is written and what is read, and changes no byte of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lib.files.files import InputError, clear
from lib.files.tables import compact, read_table, write_table
from lib.work.cells import Course, Tables, joined

Table = pd.DataFrame
KINDS: dict[str, Callable[[pa.DataType], bool]] = {
    "integer": pa.types.is_integer,
    "number": lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind),
    "truth": pa.types.is_boolean,
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
}
EMPTY = {"integer": int, "number": float, "truth": bool, "text": str}


class Column(NamedTuple):
    """What a column holds: a kind of value, or a list of them where the kind ends with an s; and
    whether a table may lack it.
    """

    kind: str
    meaning: str
    optional: bool = False


@dataclass(frozen=True)
class Schema:
    """What a row of a table is, and its columns in their order."""

    row: str
    columns: dict[str, Column]

    @property
    def required(self) -> list[str]:
        """The columns that no table may lack."""
        return [name for name, column in self.columns.items() if not column.optional]

    def whole(self) -> "Schema":
        """The table that may lack none of these columns."""
        return Schema(
            self.row, {name: one._replace(optional=False) for name, one in self.columns.items()}
        )

    def without(self, *names: str) -> "Schema":
        """The table that lacks these columns."""
        assert set(names) <= set(self.columns), names
        kept = {name: column for name, column in self.columns.items() if name not in names}
        return Schema(self.row, kept)

    def only(self, names: str) -> "Schema":
        """The table that has these columns alone, in this order; spaces stand between names."""
        return Schema(self.row, {name: self.columns[name] for name in names.split()})

    def also(self, text: str) -> "Schema":
        """The table that has further columns, as `schema` has them, behind the others."""
        return Schema(self.row, self.columns | _columns(text))

    def frame(self, rows: Sequence[Any] | Table) -> Table:
        """The rows as a table, whose columns have their types even where there is no row."""
        table = pd.DataFrame(rows, columns=self.required)
        kinds = {name: self.columns[name].kind for name in self.required}
        types = {name: EMPTY[kind] for name, kind in kinds.items() if kind in EMPTY}
        return table if len(table) else table.astype(types)

    def write(self, table: Table, path: Path, *, small: bool = False) -> None:
        """Write the columns of the schema; `small` for git, in 32 bits.

        Raises `InputError` where the table lacks one, or has another type in it.
        """
        names = self._found(list(map(str, table)), str(path))
        chosen = table[names]
        self._check_types(pa.Table.from_pandas(chosen, preserve_index=False).schema, str(path))
        write_table(compact(chosen) if small else chosen, path)

    def read(self, path: Path) -> Table:
        """Read a table; raises `InputError` where its columns or types are others."""
        table = read_table(path)
        names = self._found(list(map(str, table)), str(path))
        self._check_types(pq.read_schema(path), str(path))
        return table[names]

    def _found(self, names: Sequence[str], where: str) -> list[str]:
        """The columns that are there, in the order of the schema."""
        if not set(self.required) <= set(names):
            wanted = f"wanted a table with the columns {', '.join(self.required)}"
            raise InputError(f"{where}: {wanted}, got columns {', '.join(names)}")
        return [name for name in self.columns if name in names]

    def _check_types(self, found: pa.Schema, where: str) -> None:
        for name in self._found(found.names, where):
            column = self.columns[name]
            kind = found.field(name).type
            if not _holds(column.kind, kind):
                wanted = f"wanted {column.kind} ({column.meaning})"
                raise InputError(f"{where}: column {name}: {wanted}, got {kind}")


def schema(text: str) -> Schema:
    """The schema that a text shows: what a row is, then a line for each column: its name, its kind
    (integer, number, truth or text, with an s where it holds several, with two where it holds
    several of these, and with a question mark where a table may lack the column), and what it
    means.
    """
    row, _, lines = text.strip().partition("\n")
    return Schema(row, _columns(lines))


def write_tables_of(
    schemas: dict[str, Schema], tables: dict[str, Table], folder: Path, *, small: bool = False
) -> None:
    """Write the tables of a folder, each by its name, in place of those that are there."""
    clear(folder, "*.parquet")
    folder.mkdir(parents=True, exist_ok=True)
    for name, one in schemas.items():
        one.write(tables[name], folder / f"{name}.parquet", small=small)


def write_joined(
    schemas: dict[str, Schema], cells: Sequence[Tables | Course], folder: Path
) -> None:
    """Write the tables of a folder, each joined over the cells that have one of its name."""
    parts = [cell.tables if isinstance(cell, Course) else cell for cell in cells]
    names = {name for part in parts for name in part}
    tables = {
        name: joined(parts, name) if name in names else one.frame([])
        for name, one in schemas.items()
    }
    write_tables_of(schemas, tables, folder)


def write_tables_there(
    schemas: dict[str, Schema],
    found: Mapping[Any, Sequence[Tables | Course]],
    folder: Path,
) -> None:
    """Write the tables that some cell has, joined over the cells: what was not run has none."""
    cells = [cell for alike in found.values() for cell in alike]
    parts = [cell.tables if isinstance(cell, Course) else cell for cell in cells]
    names = dict.fromkeys(name for part in parts for name in part)
    write_joined({name: schemas[name] for name in names}, cells, folder)


def read_tables_of(schemas: dict[str, Schema], folder: Path, of: str = "") -> dict[str, Table]:
    """The tables of a folder by name, or those in it `of` a problem, whose name begins theirs."""
    begin = f"{of}_" if of else ""
    return {name: one.read(folder / f"{begin}{name}.parquet") for name, one in schemas.items()}


def read_tables_there(schemas: dict[str, Schema], folder: Path) -> dict[str, Table]:
    """The tables of a folder that are there, by name: what was not run has none."""
    there = {name: one for name, one in schemas.items() if (folder / f"{name}.parquet").is_file()}
    return read_tables_of(there, folder)


def _columns(text: str) -> dict[str, Column]:
    lines = (line.split(maxsplit=2) for line in text.strip().splitlines())
    return {
        name: Column(kind.removesuffix("?"), meaning, optional=kind.endswith("?"))
        for name, kind, meaning in lines
    }


def _holds(kind: str, found: pa.DataType) -> bool:
    """Whether a type of Parquet holds such values; where there are none it says nothing."""
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        return kind.endswith("s") and _holds(kind.removesuffix("s"), found.value_type)
    if pa.types.is_dictionary(found):
        return _holds(kind, found.value_type)
    return pa.types.is_null(found) or (kind in KINDS and KINDS[kind](found))
