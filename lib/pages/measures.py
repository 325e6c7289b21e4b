"""The measures of a run as one table in text, a value a line, so that a diff shows what moved.

The columns are those of `Row`. A claim names what it judges as `MEASURE` or `MEASURE.CASE`, with
the scales that it means (`among` of lib/pages/claims.py). A row without a unit is a number that
statements of claims name: a size or the like, as it was when the measures were taken. The first
line is the digest of the others, which a reader checks.
"""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib.files.files import InputError, atomic, sha256
from lib.files.tables import significant, write_json

DIGEST = "# sha256 of the lines below: "
Values = pd.Series | Mapping[str, pd.Series]  # by unit, or such values by scale, the smallest last


class Row(NamedTuple):
    """A value of a measure."""

    measure: str
    case: str  # the problem, optimiser or data set; empty where there is one alone
    scale: str  # the init scale, such as 1e-8
    unit: str  # the seed, task or base, with a comma and a part of it where it has several values
    value: Any


class Named(dict[str, Any]):
    """The entries of a file by name.

    A name that is not there raises an `InputError`, which says where it was wanted.
    """

    def __init__(self, found: Mapping[str, Any], where: str):
        super().__init__(
            {
                key: Named(of, f"{where}: {key}") if isinstance(of, dict) else of
                for key, of in found.items()
            }
        )
        self.where = where

    def __missing__(self, name: str) -> Any:
        raise InputError(
            f"{self.where}: wanted {name!r}, got {', '.join(self) or 'nothing'!s:.100}"
        )


def rows_of(measured: Mapping[str, Values], case: str = "") -> list[Row]:
    """The rows of measures of one case."""
    return [
        Row(measure, case, scale, str(unit), float(value))
        for measure, values in measured.items()
        for scale, by_unit in ({"": values} if isinstance(values, pd.Series) else values).items()
        for unit, value in by_unit.items()
    ]


def setup_rows(said: Mapping[str, float | str], case: str = "") -> list[Row]:
    """The rows of what statements name of one case."""
    return [Row(name, case, "", "", value) for name, value in said.items()]


def write_measures(
    rows: Sequence[Row], metrics: Path, headlines: Mapping[str, tuple[str, str]]
) -> None:
    """Write `measures.csv` in six significant digits, and `headlines.json`, DVC's metrics.

    The headlines are the means of a few measures, each a measure and a case by the name that DVC
    shows, those that were taken, in three digits: so `dvc metrics show` fits a screen, and rounding
    moves nothing. The mean of a measure by scale is that at its smallest scale.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows([*row[:-1], _text(row.value)] for row in rows)
    content = lines.getvalue()
    with atomic(metrics / "measures.csv") as part:
        part.write_text(f"{DIGEST}{sha256(content.encode())}\n{content}", encoding="utf-8")
    taken = summary(_by_name(rows))
    wanted = {name: _name(*of) for name, of in headlines.items()}
    means = {name: taken[of]["mean"] for name, of in wanted.items() if of in taken}
    write_json(significant(means, 3), metrics / "headlines.json")


def read_measures(path: Path) -> Named:
    """The measures of a run by name, and its `setup`.

    A measure is looked up as `MEASURE` or `MEASURE.CASE`, and has its `cases`, the names of its
    units, and `values`, or such by scale. Raises `InputError` where the file is another, or does
    not fit its digest, or where what is looked up is not there.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: wanted a table of measures, got: {error}") from error
    return Named(parsed(text, str(path)), str(path))


def parsed(text: str, where: str) -> dict[str, Any]:
    """What `read_measures` gives of the text of a table; `where` begins a message."""
    first, _, content = text.partition("\n")
    wanted, got = first.removeprefix(DIGEST), sha256(content.encode())
    if not first.startswith(DIGEST):
        raise InputError(f"{where}: wanted a first line {DIGEST.strip()!r}, got {first!r:.80}")
    if wanted != got:
        raise InputError(
            f"{where}: wanted the content of its digest, {wanted:.12}, got another, {got:.12}: "
            "the file was altered"
        )
    header, *lines = csv.reader(io.StringIO(content)) if content else [[]]
    if header != list(Row._fields) or any(len(line) != len(header) for line in lines):
        wanted = f"wanted lines of the columns {', '.join(Row._fields)}"
        raise InputError(f"{where}: {wanted}, got {', '.join(header):.100}")
    return _by_name(Row._make([*line[:-1], _value(line[-1])]) for line in lines)


def summary(measures: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The mean and standard deviation over units, of each measure at its smallest scale.

    NaN where a value is missing, and the deviation also where there is one value.
    """
    found = {}
    for name, measure in measures.items():
        if name == "setup":
            continue
        values = measure if "values" in measure else list(measure.values())[-1]
        numbers = np.array([math.nan if v is None else v for v in values["values"]], float)
        finite = np.isfinite(numbers).all()
        spread = numbers.std(ddof=1) if finite and len(numbers) > 1 else math.nan
        found[name] = {"mean": numbers.mean() if finite else math.nan, "sd": spread}
    return found


def _by_name(rows: Iterable[Row]) -> dict[str, Any]:
    setup: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for measure, case, scale, unit, value in rows:
        name = _name(measure, case)
        if not unit:
            setup[name] = value
            continue
        values = found.setdefault(name, {})
        if scale:
            values = values.setdefault(scale, {})
        values.setdefault("cases", []).append(unit)
        values.setdefault("values", []).append(value)
    return {"setup": setup, **found}


def _name(measure: str, case: str) -> str:
    return f"{measure}.{case}" if case else measure


def _text(value: Any) -> str:
    """A number in six significant digits; nothing where it is infinite or none."""
    rounded = significant(value)
    return "" if rounded is None else str(rounded)


def _value(text: str) -> Any:
    """The number that is written so; None for nothing, and the text for what is no number."""
    if not text:
        return None
    for kind in (int, float):
        try:
            if str(kind(text)) == text:
                return kind(text)
        except ValueError:
            continue
    return text
