"""Tables and small JSON files whose bytes depend on their content alone."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lib.files.files import InputError, atomic
from lib.files.inputs import read_json as read_json
from lib.files.inputs import with_json_digest


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as Parquet, without the writer's metadata and with a checksum on every page."""
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    with atomic(path) as part:
        pq.write_table(
            table, part, compression="zstd", store_schema=False, write_page_checksum=True
        )


def read_table(
    path: Path, columns: Sequence[str] = (), *, and_others: bool = False
) -> pd.DataFrame:
    """Read these columns of a Parquet table, or all, verifying the checksum of every page.

    With `and_others` these columns must be there, and all columns are read. Raises `InputError`
    where the file is missing, truncated, altered, or lacks a column.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            there = file.schema_arrow.names
            if not set(columns) <= set(there):
                wanted = f"wanted a table with the columns {', '.join(columns)}"
                raise InputError(f"{path}: {wanted}, got columns {', '.join(there)}")
            return file.read(None if and_others else list(columns) or None).to_pandas()
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        said = " ".join(str(error).split())  # on one line
        raise InputError(f"{path}: wanted a whole Parquet table, got: {said}") from error


def read_tables(folder: Path, columns: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """The tables of these names in a folder, each with all its columns.

    `columns` says which columns each table must have, with spaces between them. Raises
    `InputError` as `read_table` does.
    """
    return {
        name: read_table(folder / f"{name}.parquet", known_by.split(), and_others=True)
        for name, known_by in columns.items()
    }


def pick(table: pd.DataFrame, *, by: str = "seed", **where: Any) -> pd.DataFrame:
    """The rows of a table whose columns have these values, indexed and sorted by column `by`."""
    for column, value in where.items():
        table = table[table[column] == value]
    return table.set_index(by).sort_index()


def compact(frame: pd.DataFrame, *, single_precision: bool = True) -> pd.DataFrame:
    """A frame made small for git: texts as categories and, where wanted, numbers in 32 bits.

    Lists of numbers are shortened, too, and whole numbers stay whole. A column in which one number
    would not fit (a seed above 2³¹, a float above 3.4e38) keeps its 64 bits.
    """
    return frame.assign(
        **{str(name): _shortened(column, single_precision) for name, column in frame.items()}
    )


def _shortened(column: pd.Series, single_precision: bool) -> Any:
    """A column in fewer bytes, or as it is."""
    if len(column) and isinstance(column.iloc[0], np.ndarray):
        if not single_precision or not all(map(_fits_32_bits, column)):
            return column
        return [_in_32_bits(values) for values in column]
    kind = str(column.dtype)
    if kind in ("object", "str"):
        return column.astype("category")
    if not single_precision or kind not in ("int64", "float64"):
        return column
    if not _fits_32_bits(column.to_numpy()):
        return column
    return column.astype("int32") if kind == "int64" else column.astype("float32")


def _fits_32_bits(values: np.ndarray) -> bool:
    """Whether no number of an array leaves the range of its kind in 32 bits."""
    if values.dtype.kind == "b":
        return True
    span = np.iinfo(np.int32) if values.dtype.kind == "i" else np.finfo(np.float32)
    finite = values[np.isfinite(values)]
    return bool(((finite >= span.min) & (finite <= span.max)).all())


def _in_32_bits(values: np.ndarray) -> Any:
    return values.astype({"i": np.int32, "b": bool}.get(values.dtype.kind, np.float32))


def significant(value: Any, digits: int = 6) -> Any:
    """Round every float of a nested structure to significant digits; NaN and infinities as null."""
    if isinstance(value, dict):
        return {key: significant(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [significant(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def write_json(value: Any, path: Path, *, digest: bool = False) -> None:
    """Write JSON in six significant digits, in the order given, and with the digest of the content
    where it is wanted: in what a later stage reads.
    """
    content = with_json_digest(significant(value)) if digest else significant(value)
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    with atomic(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a small CSV in six significant digits, for DVC's plots."""
    with atomic(path) as part:
        frame.to_csv(part, index=False, float_format="%.6g", lineterminator="\n")
