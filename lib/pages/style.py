"""The look that all figures share; equal content is written as equal bytes."""

import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from lib.pages.dark import for_dark

# One palette. A quantity has one colour in all figures, under its name here or in its module.
BLUE = "#2b6cb0"
ORANGE = "#dd7b1a"
GREEN = "#276749"
LIGHT_GREEN = "#8fb339"
PURPLE = "#805ad5"
MAGENTA = "#b83280"
TEAL = "#319795"
BROWN = "#744210"
RED = "#c53030"
GREY = "#718096"
CUT_COLOR = "#cbd5e0"  # what a cut takes away
SHADE = "#edf2f7"
MATRIX_COLORS = {"W_KQ": BLUE, "W_VO": ORANGE}
MATRIX_NAMES = {"W_KQ": r"$W_K W_Q^\top$", "W_VO": r"$W_V W_O^\top$"}
INITIAL_COLOR = BROWN  # the initial state
BOUND_COLOR = RED  # what a theorem or an assumption allows, dashed
LOST_COLOR = MAGENTA  # what leaves, is lost or goes wrong
HINGE_COLOR = TEAL  # the hinge loss
NULL_COLOR = GREY  # a null that nothing was trained for: Gaussian, random, at random
PERMUTED_COLOR = PURPLE  # training on permuted labels
PROBLEM_COLORS = (GREEN, BLUE, BROWN, ORANGE, MAGENTA, TEAL)
ORDER_COLORS = {
    "smallest": GREEN,
    "random": NULL_COLOR,
    "largest": "black",
}  # in which order something is pruned
SEED_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREENS: Colormap = LinearSegmentedColormap.from_list("greens", ["#c6e8c1", "#59b36a", "#0b5d2e"])
VIRIDIS: Colormap = matplotlib.colormaps["viridis"]
TRAINED_COLOR = GREENS(0.85)
# inches: a figure as wide as the report's column, 1140 CSS pixels of 1/96 inch; none is wider
READ_WIDTH = 11.875
LEAST_TEXT = 7.0  # points, of every text in a figure, where it is read

DPI = 150  # of PNGs, and of images inside an SVG
VIEW = "view: "  # before the name of a view, in the id of its axes
ROOM = 4.0  # points between a view's edge and what is drawn in it

_RC: Any = {
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e8f0",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "svg.hashsalt": "transformer dynamics",
    "svg.fonttype": "path",
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the common style within the block."""
    with plt.rc_context(_RC):
        yield


def rendered(figure: Figure) -> bytes:
    """The figure as an SVG file, without a date, versions or random ids; closes it.

    It has colours for a light page and for a dark one, and a `<view>` for each of its views.
    """
    file = io.BytesIO()
    with plt.rc_context(_RC):
        views = _write_svg(figure, file)
    plt.close(figure)
    svg = for_dark(rounded(file.getvalue()))
    return svg.replace(b"</svg>", "".join(views).encode() + b"</svg>") if views else svg


def number_panel(*axes: Axes) -> None:
    """Name the panel that shows the figure's number: a page shows it large, and the rest behind."""
    _view("number", axes)


def frame(name: str, *axes: Axes) -> None:
    """Name panels as one of several frames, of which a page shows one at a time."""
    _view(name, axes)


def _view(name: str, axes: Sequence[Axes]) -> None:
    for one in axes:
        one.set_gid(VIEW + name)


def as_svg(draw: Callable[[], Figure]) -> bytes:
    """The file of the figure that `draw` gives, in the common style."""
    with styled():
        return rendered(draw())


def rounded(svg: bytes) -> bytes:
    """The drawing with every place in hundredths of a point, a fifth smaller.

    Scales stay as they are. What another processor changes in a figure's numbers is mostly less.
    """

    def short(match: re.Match[bytes]) -> bytes:
        if match[0].startswith(b"scale"):
            return match[0]
        text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
        return b"0" if text == "-0" else text.encode()

    return re.sub(rb"scale\([^)]*\)|-?\d+\.\d{3,}(?:e-?\d+)?", short, svg)


def _write_svg(figure: Figure, file: io.BytesIO) -> list[str]:
    """What `savefig` writes, in three quarters of its time: it draws all twice for the layout.

    What is returned are the elements of the figure's views.
    """
    canvas = FigureCanvasSVG(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.dpi = 72  # that of SVG, in which texts are measured
        engine.execute(figure)
        figure.set_layout_engine("none")
        # The last digits follow addresses in the solver's memory, and clip ids follow them.
        for axes in figure.axes:
            points = np.round(axes.get_position(original=True).get_points(), 6)
            axes.set_position(Bbox(points), which="original")
    figure.dpi = 72
    views = _views(figure)
    figure.dpi = DPI  # of images inside
    canvas.print_svg(file, metadata={"Date": None, "Creator": None})
    return views


def _views(figure: Figure) -> list[str]:
    """The box of each view: its panels with their labels, and as much room around in all."""
    panels: dict[str, list[Axes]] = {}
    for axes in figure.axes:
        name = axes.get_gid() or ""
        if name.startswith(VIEW):
            axes.set_gid(None)
            panels.setdefault(name.removeprefix(VIEW), []).append(axes)
    if not panels:
        return []
    inner = {name: Bbox.union([one.bbox for one in of]) for name, of in panels.items()}
    outer = {
        name: Bbox.union([box for one in of if (box := one.get_tightbbox()) is not None])
        for name, of in panels.items()
    }
    around = np.max(
        [
            (
                box.x0 - outer[name].x0,
                box.y0 - outer[name].y0,
                outer[name].x1 - box.x1,
                outer[name].y1 - box.y1,
            )
            for name, box in inner.items()
        ],
        axis=0,
    )
    left, below, right, above = np.ceil(around + ROOM)
    top = figure.bbox.height
    return [
        f'<view id="{escape(name)}" viewBox="{box.x0 - left:.0f} {top - box.y1 - above:.0f} '
        f'{box.width + left + right:.0f} {box.height + above + below:.0f}"/>\n'
        for name, box in inner.items()
    ]
