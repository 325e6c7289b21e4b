"""What the figures of this family share: rows of tables, names of matrices, lines over seeds."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.style import VIRIDIS, ranged

Color = Any  # what matplotlib takes as one
MATRICES = ("W_Q", "W_K", "W_V", "W_O")
SEEDS = "mean over seeds, least to largest shaded"


def where(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The rows of a table whose columns have these values."""
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def grid(
    n_rows: int, n_columns: int, size: tuple[float, float], **shared: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of that size in inches, with rows of panels."""
    return plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, **shared)


def update_of(matrix: str) -> str:
    """The update of a matrix, as figures name it."""
    return rf"$\Delta {matrix[0]}_{matrix[2:]}$"


def shade(i: int, n: int) -> Color:
    """The colour of the i-th of n lines."""
    return VIRIDIS(0.9 * i / max(1, n - 1))


def dotted(
    axes: Axes,
    rows: pd.DataFrame,
    by: str,
    column: str,
    color: Color,
    label: str | None = None,
    **style: Any,
) -> None:
    """Draw the mean of a column at each value of another as dots on a line, with its range shaded,
    and nothing where there are no rows.
    """
    if len(rows):
        look = {"color": color, "marker": "o", "label": label, "ms": 4, **style}
        ranged(axes, rows, by, column, **look)


def whiskers(values: pd.DataFrame) -> list[pd.Series]:
    """How far the least and the largest are from the mean, for error bars."""
    return [values["mean"] - values["min"], values["max"] - values["mean"]]
