"""Tables and small JSON files whose bytes depend on their content alone."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from lib.io.files import InputError, atomic


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a frame as Parquet, without the writer's metadata and with a checksum on every page."""
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    with atomic(path) as part:
        pq.write_table(table, part, compression="zstd", store_schema=False, write_page_checksum=True)


def read_table(path: Path, columns: list[str] | None = None) -> pd.DataFrame:
    """Read a Parquet table, verifying the checksum of every page.

    Raises `InputError` where the file is missing, truncated, altered, or lacks a column.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            missing = set(columns or []) - set(file.schema_arrow.names)
            if missing:
                raise InputError(f"{path}: wanted the columns {sorted(missing)}, got {file.schema_arrow.names}")
            return file.read(columns).to_pandas()
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise InputError(f"{path}: wanted a whole Parquet table, got: {error}") from error


def compact(frame: pd.DataFrame, *, single_precision: bool = True) -> pd.DataFrame:
    """A frame made small for git: texts as categories and, where wanted, numbers and lists of them in 32 bits."""
    types = {"object": "category", "str": "category"}
    if single_precision:
        types |= {"float64": "float32", "int64": "int32"}
    lists = [str(name) for name in frame if len(frame) and isinstance(frame[name].iloc[0], np.ndarray)]
    columns = {name: types[str(t)] for name, t in frame.dtypes.items() if str(t) in types and name not in lists}
    shortened = {name: [values.astype(np.float32) for values in frame[name]] for name in lists if single_precision}
    return frame.astype(columns).assign(**shortened)


def significant(value: Any, digits: int = 6) -> Any:
    """Round every float of a nested structure to significant digits; NaN and infinities as null."""
    if isinstance(value, dict):
        return {key: significant(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [significant(item, digits) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    return value


def write_json(value: Any, path: Path) -> None:
    """Write JSON in six significant digits, in the order given."""
    text = json.dumps(significant(value), indent=2, allow_nan=False, ensure_ascii=False)
    with atomic(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read JSON; raises `InputError` where the file is missing or broken."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: wanted a JSON file, got: {error}") from error


def write_csv(frame: pd.DataFrame, path: Path) -> None:
    """Write a small CSV in six significant digits, for DVC's plots."""
    with atomic(path) as part:
        frame.to_csv(part, index=False, float_format="%.6g", lineterminator="\n")
