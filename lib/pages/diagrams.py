"""Diagrams of models: boxes with formulas, and arrows between them."""

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

HEIGHT = 0.56  # of a box with one line of text, in inches
LINE = 0.24  # what another line of text adds


@dataclass(frozen=True)
class Box:
    """A box on a board: its middle and its size, in inches."""

    x: float
    y: float
    width: float
    height: float


def board(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure of this size in inches, and axes that measure it in inches."""
    figure, axes = plt.subplots(figsize=(width, height), layout="none")
    axes.set_position((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def box(
    axes: Axes, x: float, y: float, text: str, *, width: float = 1.6, color: str = "black"
) -> Box:
    """A box with its middle at (x, y), as high as its text; a colour other than black is a
    weight's.
    """
    height = HEIGHT + LINE * text.count("\n")
    corner = (x - width / 2, y - height / 2)
    edge: Any = {"edgecolor": color, "linewidth": 1.6, "facecolor": "white"}
    rounded = "round,pad=0,rounding_size=0.08"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=rounded, **edge))
    axes.text(x, y, text, ha="center", va="center", fontsize=10.5, color=color)
    return Box(x, y, width, height)


def arrow(axes: Axes, begin: Box, end: Box, text: str = "") -> None:
    """An arrow from a box to one to its right, or above or below it, and what is said of it."""
    across = abs(end.x - begin.x) > (begin.width + end.width) / 2
    if across:
        start = (begin.x + begin.width / 2, begin.y)
        stop = (end.x - end.width / 2, end.y)
    else:
        down = 1 if end.y < begin.y else -1
        start = (begin.x, begin.y - down * begin.height / 2)
        stop = (end.x, end.y + down * end.height / 2)
    look: Any = {"arrowstyle": "-|>", "mutation_scale": 13, "color": "black", "linewidth": 1.2}
    axes.add_patch(FancyArrowPatch(start, stop, shrinkA=2, shrinkB=2, **look))
    if text:
        middle = ((start[0] + stop[0]) / 2, (start[1] + stop[1]) / 2)
        aside: Any = {"xytext": (0, 4) if across else (5, 0), "textcoords": "offset points"}
        place: Any = {"ha": "center", "va": "bottom"} if across else {"ha": "left", "va": "center"}
        axes.annotate(text, middle, fontsize=9, **aside, **place)


def note(axes: Axes, x: float, y: float, text: str, color: str = "black") -> None:
    """A text without a box, with its middle at (x, y)."""
    axes.text(x, y, text, ha="center", va="center", fontsize=9, color=color)
