"""What the figures of this family share: rows of tables, names of matrices, points of seeds."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from lib.pages.style import VIRIDIS

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


def shade(i: int, n: int, colors: Colormap = VIRIDIS) -> tuple[float, float, float, float]:
    """The colour of the i-th of n lines."""
    return colors(0.9 * i / max(1, n - 1))


def points(
    axes: Axes, x: float, values: np.ndarray, width: float, reach: float, **style: Any
) -> None:
    """One point per seed, side by side around x."""
    side = (
        np.linspace(-reach, reach, len(values)) * width
        if len(values) > 1
        else np.zeros(len(values))
    )
    axes.plot(x + side, values, ".", **style)
