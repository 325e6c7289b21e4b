"""What the tests of stages share, written anew from the descriptions of the formats: nothing of lib
is in it.

A test of a stage makes its input with this, runs its `main` by the fixture `stage`, and compares
all that it wrote with a reference of its own: brute force, autograd, or a table made by hand.
"""

import csv
import hashlib
import io
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

Weights = dict[str, Tensor]
NOTHING = {
    "integer": 0,
    "number": 0.0,
    "truth": False,
    "text": "",
    "integers": np.zeros(1, int),
    "numbers": np.zeros(1),
    "truths": np.zeros(1, bool),
}


def generator(seed: int, *purpose: str | int) -> torch.Generator:
    """The random generator of a seed's purpose: its seed is the first 8 bytes of a SHA-256,
    halved.
    """
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") // 2)


def table(text: str) -> pd.DataFrame:
    """The table that a text shows: the names of its columns, then a line for every row.

    Cells stand between spaces, or in quotes; `-` is nothing, and commas separate the numbers of an
    array.
    """
    columns, *rows = (shlex.split(line, comments=True) for line in text.strip().splitlines())
    return pd.DataFrame([[_cell(word) for word in row] for row in rows], columns=columns)


def _cell(word: str) -> Any:
    if word in ("True", "False"):
        return word == "True"
    for kind in (int, float, _array):
        try:
            return kind(word)
        except ValueError:
            continue
    return math.nan if word == "-" else word


def _array(word: str) -> np.ndarray:
    if "," not in word:
        raise ValueError(word)
    return np.array([float(number) for number in word.split(",") if number])


def whole(table: pd.DataFrame, schema: Any) -> pd.DataFrame:
    """The table with every column of its schema: zeros, and lists of a zero, where it has none."""
    missing = {
        name: pd.Series([NOTHING[column.kind]] * len(table), table.index)
        for name, column in schema.columns.items()
        if name not in table
    }
    return table.assign(**missing)


def worked_out(text: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Measures by hand, a line each: the name, an @ with its scale, its cases with their values.

    A dash is what is infinite or not a number.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for line in text.strip().splitlines():
        name, *cases = line.split(" | ")
        values = dict(case.rsplit(": ", 1) for case in cases)
        name, _, scale = name.partition(" @ ")
        found.setdefault(name, {})[scale] = {
            case: None if value == "-" else pytest.approx(float(value), rel=2e-5, abs=1e-9)
            for case, value in values.items()
        }
    return found


def with_digest(content: Any) -> str:
    """An object as JSON, with the digest of its content as its last key; all else without."""
    if not isinstance(content, dict):
        return json.dumps(content)
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps({**content, "sha256_of_the_rest": digest})


def read_digested(file: Path) -> Any:
    """The object of a JSON file without its digest, which is right."""
    found = json.loads(file.read_text(encoding="utf-8"))
    digest = found.pop("sha256_of_the_rest")
    assert hashlib.sha256(json.dumps(found).encode()).hexdigest() == digest
    return found


def read_measures(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, dict[str, Any]]]]:
    """The setup, and the measures as `worked_out` has them, of a stage that wrote both there.

    The digest of their table is right.
    """
    text = (folder / "measures.csv").read_text(encoding="utf-8")
    first, content = text.split("\n", 1)
    digest = hashlib.sha256(content.encode()).hexdigest()
    assert first == f"# sha256 of the lines below: {digest}"
    setup: dict[str, Any] = {}
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in csv.DictReader(io.StringIO(content)):
        name = ".".join(part for part in (row["measure"], row["case"]) if part)
        if row["unit"]:
            by_unit = found.setdefault(name, {}).setdefault(row["scale"], {})
            by_unit[row["unit"]] = float(row["value"]) if row["value"] else None
        else:
            setup[name] = row["value"]
    return setup, found


def series(axes: Axes) -> list[str]:
    """The lines of a panel that hold points, each as a text: every x, then every y, to four
    digits.
    """
    return [
        f"{_digits(x)}  {_digits(y)}" for x, y in (line.get_data() for line in axes.lines) if len(x)
    ]


def _digits(numbers: Iterable[float]) -> str:
    return " ".join(f"{float(number) + 0:.4g}" for number in numbers)


def legend(of: Axes | Figure) -> list[str]:
    """The texts of the legend of a panel, or of a figure."""
    found = of.legends[0] if isinstance(of, Figure) else of.get_legend()
    assert found is not None
    return [text.get_text() for text in found.get_texts()]


def ticks(axis: Axis) -> list[str]:
    """The labels along an axis."""
    return [label.get_text() for label in axis.get_ticklabels()]


def write_run(
    folder: Path,
    layout: Mapping[str, Any],
    snapshots: Sequence[Weights],
    steps: Sequence[Mapping[str, Any]],
) -> Path:
    """A run in a folder: its snapshots, its table of steps (rows with `snapshot`), their digests.

    `layout` has `family` and `matrices` (name to axes), and may have `products`, `gauge`, `cell`
    and `seeds`.
    """
    folder.mkdir(parents=True)
    described = {
        "products": {},
        "gauge": {},
        "cell": {},
        "seeds": [],
        **layout,
        "format": "transformer dynamics run 1",
    }
    for number, weights in enumerate(snapshots):
        held = {name: tensor.contiguous().clone() for name, tensor in weights.items()}
        save_file(
            held, folder / f"snapshot-{number:04d}.safetensors", {"run": json.dumps(described)}
        )
    pd.DataFrame(steps).to_parquet(folder / "steps.parquet")
    digests = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(digests))
    return folder


def read_run(folder: Path) -> tuple[dict[str, Any], list[Weights], pd.DataFrame]:
    """The layout, the snapshots and the steps of a run, whose digests are right and whose files are
    no others.
    """
    sums = [line.split("  ") for line in (folder / "SHA256SUMS").read_text().splitlines()]
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    del found["SHA256SUMS"]
    assert {name: digest for digest, name in sums} == found
    layouts, snapshots = [], []
    for file in sorted(folder.glob("snapshot-*.safetensors")):
        with safe_open(file, "pt") as opened:
            layouts.append(json.loads(opened.metadata()["run"]))
            snapshots.append({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118 (no mapping)
    assert all(layout == layouts[0] for layout in layouts)
    return layouts[0], snapshots, pd.read_parquet(folder / "steps.parquet")


def files(folder: Path) -> list[str]:
    """Every file below a folder but scratch, by its path from there."""
    found = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    return sorted(name for name in found if not name.startswith(".dvc/tmp/scratch/"))
