"""What a table becomes in a panel: lines of units, means with their ranges, points, directions.

A unit is what was drawn anew: a seed, a head or a base. Measurement is solid, theory dashed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lib.pages.style import BOUND_COLOR, VIRIDIS

Color = str | tuple[float, float, float, float]
Look = dict[str, Any]  # keywords of matplotlib

THEORY: Look = {"color": "black", "ls": "--"}  # what theory says, or a limit
BOUND: Look = {"color": BOUND_COLOR, "ls": "--"}  # what a theorem, an assumption or a bar allows


def where(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The rows of a table whose columns have these values."""
    for column, value in values.items():
        table = table[table[column] == value]
    return table


def shade(i: int, n: int, until: float = 0.9, begin: float = 0.0) -> Color:
    """The colour of the i-th of n; the first and the last stand at these places of the scale."""
    return VIRIDIS(begin + (until - begin) * i / max(1, n - 1))


def shaded(
    table: pd.DataFrame, column: str, *, ordered: bool = False
) -> Iterator[tuple[Any, pd.DataFrame, Color]]:
    """Every value of a column, as they come or in order, with its rows and its colour.

    Colours begin at blue, as violet is for permuted labels.
    """
    values = list(dict.fromkeys(table[column]))
    if ordered:
        values.sort()
    for i, value in enumerate(values):
        yield value, where(table, **{column: value}), shade(i, len(values), 0.92, 0.25)


def unit_lines(
    axes: Axes,
    rows: pd.DataFrame,
    x: str,
    y: str,
    *,
    by: str | list[str] = "seed",
    label: str | None = None,
    markers: Sequence[str] = (),
    **look: Any,
) -> None:
    """A line for each unit through its rows as they come; the legend has all of them once.

    Where there are `markers`, each unit has one of them in turn.
    """
    for n, (_, own) in enumerate(rows.groupby(by, observed=True)):
        if markers:
            look["marker"] = markers[n % len(markers)]
        axes.plot(own[x], own[y], label=label if n == 0 else None, **look)


def ranged(axes: Axes, rows: pd.DataFrame, by: str, column: str, **look: Any) -> None:
    """The mean of a column at each value of another, and a band from the least to the largest."""
    found = rows.groupby(by, observed=True)[column].agg(["mean", "min", "max"])
    (drawn,) = axes.plot(found.index, found["mean"], **look)
    band(axes, found.index, found["min"], found["max"], drawn.get_color())


def band(axes: Axes, x: Any, low: Any, high: Any, color: Any) -> None:
    """A band from the least to the largest, in the pale colour of a line."""
    axes.fill_between(x, low, high, color=color, alpha=0.16, lw=0)


def unit_points(
    axes: Axes,
    place: float,
    values: Any,
    color: Color,
    *,
    along: Literal["x", "y"] = "y",
    spread: float = 0.0,
    middle: Callable[[Any], Any] | None = None,
    width: float = 0.3,
    marker: str = "o",
    **look: Any,
) -> None:
    """A point for each unit of a case that has a place, `spread` to both sides of it.

    Values run along y, or along x for a case that is a row. A bar stands at their `middle`, such as
    `np.mean`, and reaches a `width` to both sides. Nothing is drawn where there are no units.
    """
    values = np.asarray(values, float)
    if not len(values):
        return
    places = place + np.linspace(-spread, spread, len(values)) if len(values) > 1 else [place]
    if middle is not None:
        bar = axes.hlines if along == "y" else axes.vlines
        bar(middle(values), place - width, place + width, color=color, lw=2.5)
    points = (places, values) if along == "y" else (values, places)
    axes.plot(*points, marker, color=color, **look)


def directions(
    axes: Axes, x: Any, values: np.ndarray, color: Callable[[int, int], Color], **look: Any
) -> None:
    """A line for each singular value through time, the largest on top.

    `values` has a row for each time and a column for each direction; `color` gives the colour of
    the i-th of n.
    """
    n = values.shape[1]
    for i in reversed(range(n)):
        axes.plot(x, values[:, i], color=color(i, n), **look)


def write_beside(
    axes: Axes, text: str, at: Any, offset: tuple[float, float] = (0, 7), **look: Any
) -> None:
    """A text beside what it says something of, an offset in points away."""
    look = {"ha": "center", **look}
    axes.annotate(text, at, xytext=offset, textcoords="offset points", **look)
