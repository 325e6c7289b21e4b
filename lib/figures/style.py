"""The look that all figures share, and how they are written so that equal content gives equal bytes."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import Colormap, LinearSegmentedColormap
from matplotlib.figure import Figure

MATRIX_COLORS = {"W_KQ": "#2b6cb0", "W_VO": "#dd7b1a"}
MATRIX_NAMES = {"W_KQ": r"$W_K W_Q^\top$", "W_VO": r"$W_V W_O^\top$"}
INITIAL_COLOR = "#c53030"
NULL_COLOR = "#718096"
SEED_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREENS: Colormap = LinearSegmentedColormap.from_list("greens", ["#c6e8c1", "#59b36a", "#0b5d2e"])
VIRIDIS: Colormap = matplotlib.colormaps["viridis"]

DPI = 150  # of PNGs, and of images inside an SVG

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


def rendered(figure: Figure, kind: str = "svg") -> bytes:
    """The figure as a file of that kind, without a date, versions or random ids; closes it."""
    file = io.BytesIO()
    with plt.rc_context(_RC):
        if kind == "svg":
            _write_svg(figure, file)
        else:
            figure.savefig(file, format=kind, metadata={"Software": None}, dpi=DPI)
    plt.close(figure)
    return rounded(file.getvalue()) if kind == "svg" else file.getvalue()


def rounded(svg: bytes) -> bytes:
    """The drawing with every place in hundredths of a point, a fifth smaller; scales stay as they are.

    What another processor changes in a figure's numbers is mostly less than that.
    """

    def short(match: re.Match[bytes]) -> bytes:
        if match[0].startswith(b"scale"):
            return match[0]
        text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
        return b"0" if text == "-0" else text.encode()

    return re.sub(rb"scale\([^)]*\)|-?\d+\.\d{3,}(?:e-?\d+)?", short, svg)


def _write_svg(figure: Figure, file: io.BytesIO) -> None:
    """What `savefig` writes, to the byte, in three quarters of its time: it draws all once more for the layout."""
    canvas = FigureCanvasSVG(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.dpi = 72  # that of SVG, in which texts are measured
        engine.execute(figure)
        figure.set_layout_engine("none")
    figure.dpi = DPI  # of images inside
    canvas.print_svg(file, metadata={"Date": None, "Creator": None})


def band(axes: Axes, x: object, mean: object, deviation: object, **line: object) -> None:
    """A line with a shaded band of one standard deviation to each side."""
    (drawn,) = axes.plot(x, mean, **line)  # pyright: ignore
    axes.fill_between(x, mean - deviation, mean + deviation, color=drawn.get_color(), alpha=0.16, lw=0)  # pyright: ignore


def scale_label(init_scale: float) -> str:
    """The init scale as the figures name it."""
    return f"init scale {init_scale:g}"
