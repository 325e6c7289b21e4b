"""What the figures of this family share: rows of tables, names of matrices, lines over seeds."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from lib.pages.marks import Color, ranged

MATRICES = ("W_Q", "W_K", "W_V", "W_O")
SEEDS = "mean over seeds, least to largest shaded"


def update_of(matrix: str) -> str:
    """The update of a matrix, as figures name it."""
    return rf"$\Delta {matrix[0]}_{matrix[2:]}$"


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
