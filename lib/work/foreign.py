"""Which of the tables that a failed stage was given is not the one that it reads: another's, or one
without rows.

What stages read is listed in stages/tables.txt (`make generated`): a table, whether it has rows,
its columns and what is in them. The list is looked at where a stage has failed and, before the
work, of tables that it hands on unread: no result depends on it.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

LISTED = Path(__file__).parents[2] / "stages" / "tables.txt"
NOTHING = "nothing"  # of a column without values, which fits every other


@dataclass(frozen=True)
class Table:
    """What a table holds: whether it has rows, and what is in its columns, by their names."""

    path: str
    has_rows: bool
    columns: dict[str, str]

    def line(self) -> str:
        """The table as the list has it."""
        columns = [f"{name}:{kind}" for name, kind in self.columns.items()]
        return " ".join([self.path, "rows" if self.has_rows else "none", *columns])


def described(file: Path, path: str) -> Table:
    """What is in a Parquet file, by its footer alone."""
    with pq.ParquetFile(file) as opened:
        columns = {field.name: _kind(field.type) for field in opened.schema_arrow}
        return Table(path, opened.metadata.num_rows > 0, columns)


def read_list(text: str) -> list[Table]:
    """The tables of a list, one on each line."""
    rows = [line.split() for line in text.splitlines()]
    return [
        Table(path, has == "rows", dict(column.rsplit(":", 1) for column in columns))
        for path, has, *columns in rows
    ]


def foreign_table(
    family: str,
    given: Iterable[Path],
    listed: Path | None = None,
    *,
    handed_on: Collection[str] = (),
) -> str | None:
    """What is wrong with a table of those given, a file or in a folder, on one line; None where
    each is as listed.

    A table is compared with that of its name, in the family, whose path is most like its own, or
    with each of several. Of `handed_on`, names of tables, these alone are looked at, as far as they
    have rows: without, they are no work.
    """
    listed = listed or LISTED
    if not listed.is_file():
        return None
    known = [
        table
        for table in read_list(listed.read_text())
        if family in PurePosixPath(table.path).parts
    ]
    pairs = [(table, alike) for table in _tables(given) if (alike := _alike(table.path, known))]
    if handed_on:
        pairs = [
            (table, alike)
            for table, alike in pairs
            if table.has_rows and Path(table.path).stem in handed_on
        ]
    for table, alike in pairs:
        said = [_other_columns(table, one) for one in alike]
        if all(said):
            return f"{table.path}: {said[0]}"
    empty = [
        table.path
        for table, alike in pairs
        if not table.has_rows and all(one.has_rows for one in alike)
    ]
    return (
        f"{', '.join(empty)}: wanted tables with rows, got none" if empty else None
    )  # which may be no fault


def _tables(given: Iterable[Path]) -> Iterator[Table]:
    for path in given:
        for file in sorted(path.rglob("*.parquet")) if path.is_dir() else [path]:
            try:
                yield described(file, str(file))
            except (OSError, ValueError, pa.ArrowException):
                continue  # no table: where it was read, the error has said so


def _alike(path: str, known: list[Table]) -> list[Table]:
    """The tables of the same name with as many folders in common, counted from the file on, as any
    has.

    Where none has the name, as of a case of one's own, whose table is CASE_events: those of its
    ending and folder.
    """
    parts = Path(path).absolute().parts[::-1]

    def common(table: Table) -> int:
        return sum(
            a == b for a, b in zip(PurePosixPath(table.path).parts[::-1], parts, strict=False)
        )

    def beside(table: Table) -> bool:
        folder, name = PurePosixPath(table.path).parts[-2:]
        return (
            folder == parts[1]
            and "_" in name
            and name.rpartition("_")[2] == parts[0].rpartition("_")[2]
        )

    named = [table for table in known if PurePosixPath(table.path).name == parts[0]] or list(
        filter(beside, known)
    )
    most = max(map(common, named), default=0)
    return [table for table in named if common(table) == most]


def _other_columns(got: Table, wanted: Table) -> str:
    names = f"wanted a table with the columns {', '.join(wanted.columns)}, got"
    if not wanted.columns.keys() <= got.columns.keys():
        return f"{names} columns {', '.join(got.columns)}"
    for name, kind in wanted.columns.items():
        if got.columns[name] != kind and NOTHING not in (got.columns[name], kind):
            return f"{names} {got.columns[name]} in {name}, where {kind} are wanted"
    return ""


def _kind(of: pa.DataType) -> str:
    """Numbers, texts, truths, lists or nothing; any other type by its own name."""
    types = pa.types
    kinds = {
        "nothing": types.is_null(of),
        "truths": types.is_boolean(of),
        "numbers": types.is_integer(of) or types.is_floating(of),
        "texts": types.is_string(of) or types.is_large_string(of) or types.is_dictionary(of),
        "lists": types.is_list(of) or types.is_large_list(of),
    }
    return next((kind for kind, fits in kinds.items() if fits), str(of).replace(" ", ""))
