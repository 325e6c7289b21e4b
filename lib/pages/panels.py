"""Grids of panels, and what is written on their axes and below them."""

from collections.abc import Iterable
from typing import Any, SupportsFloat

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from lib.pages.style import READ_WIDTH


def sized(width: float, height: float) -> tuple[float, float]:
    """The size of a figure in inches, which is never wider than it is read."""
    return min(width, READ_WIDTH), height


def grid(
    n_rows: int, n_columns: int, size: tuple[float, float], **shared: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of at most that size in inches, with rows of panels, however few."""
    return plt.subplots(n_rows, n_columns, figsize=sized(*size), squeeze=False, **shared)


def tall_panel(figure: Figure, panels: np.ndarray) -> Axes:
    """One panel in the place of the last column of a grid."""
    for axes in panels[:, -1]:
        axes.remove()
    return figure.add_subplot(panels[0][0].get_gridspec()[:, -1])


def power(log10: SupportsFloat) -> str:
    """A power of ten, as mathematics writes it."""
    return f"$10^{{{float(log10):g}}}$"


def scale_label(init_scale: SupportsFloat) -> str:
    """The init scale as the figures name it."""
    return f"init scale {float(init_scale):g}"


def numbers_below(
    axes: Axes, numbers: Iterable[SupportsFloat], form: str = "g", **text: Any
) -> None:
    """Ticks of x at these numbers alone, whatever its scale."""
    at: list[Any] = list(numbers)
    axes.set_xticks(at, labels=[format(number, form) for number in at], **text)
    axes.xaxis.set_minor_locator(NullLocator())


def powers_below(axes: Axes, log10: Iterable[SupportsFloat], **text: Any) -> None:
    """Ticks of x, on which stands -log10 of a small number, that name the number itself."""
    at = sorted(set(map(float, log10)), reverse=True)
    axes.set_xticks([-one for one in at], labels=[power(one) for one in at], **text)
    axes.xaxis.set_minor_locator(NullLocator())


def shared_legend(
    figure: Figure, *axes: Axes, loc: Any = "outside lower center", **look: Any
) -> None:
    """One legend beside all panels, of what these have, an entry for each name; in one row where
    it stands above or below.
    """
    found: dict[str, Any] = {}
    for one in axes:
        handles, labels = one.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    look = {"ncols": len(found) if loc.endswith("center") else 1, **look}
    figure.legend(found.values(), found.keys(), loc=loc, **look)
