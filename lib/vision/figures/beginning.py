"""The first epochs of a long training: updates under true beside permuted labels."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.marks import band, where
from lib.pages.panels import grid, shared_legend
from lib.pages.style import (
    INITIAL_COLOR,
    MATRIX_NAMES,
    NULL_COLOR,
    PERMUTED_COLOR,
    READ_WIDTH,
    TRAINED_COLOR,
    number_panel,
)
from lib.vision.figures.panels import PERMUTED, rank_axis

LEADING = 4  # singular values that are followed
LOOKS: dict[str, Any] = {
    "none": {"color": TRAINED_COLOR, "label": "update, true labels"},
    PERMUTED: {"color": PERMUTED_COLOR, "label": "update, permuted labels"},
}


def first_epochs(
    ranks: pd.DataFrame, spectra: pd.DataFrame, layer: int, head: int, per_epoch: int
) -> Figure:
    """Figures 1, 3, 5 and 12 of the first epochs of one seed, a row for each product.

    On the left are the last spectra of one head over their largest values, in the middle its
    leading singular values, and on the right stable ranks: a mean over all heads and layers, with a
    band from the lowest layer to the highest. An epoch has `per_epoch` steps.
    """
    figure, panels = grid(2, 3, (READ_WIDTH, 6.2), sharex="col")
    spectra = where(spectra, layer=layer, head=head)
    last = spectra["step"].max()
    for (spectrum, values, rank), (matrix, name) in zip(panels, MATRIX_NAMES.items(), strict=True):
        rows = where(spectra, matrix=matrix)
        initial = where(rows, of="initial", control="none")["singular_values"].iloc[0]
        _spectrum(spectrum, initial, color=INITIAL_COLOR, label="initial matrix")
        for control, look in LOOKS.items():
            updates = where(rows, of="update", control=control).sort_values("step")
            _spectrum(spectrum, where(updates, step=last)["singular_values"].iloc[0], **look)
            _leading(values, updates, per_epoch, **look)
            _ranks(rank, where(ranks, matrix=matrix, of="update", control=control), per_epoch, look)
        for of, color, label in (
            ("initial", INITIAL_COLOR, "initial matrix"),
            ("gaussian product", NULL_COLOR, "Gaussian of the update's norm"),
        ):
            level = where(ranks, matrix=matrix, of=of, control="none")["stable_rank"].mean()
            rank.axhline(level, color=color, label=label)
        rank_axis(rank)
        spectrum.set_ylabel(f"{name}\n" r"singular value / largest")
        values.set_ylabel("singular value")
        rank.set_ylabel("stable rank")
        values.set_ylim(bottom=0)
    titles = (
        f"spectrum, after epoch {last / per_epoch:.2g}",
        f"the {LEADING} largest singular values",
        "stable rank: all layers and heads",
    )
    for axes, title in zip(panels[0], titles, strict=True):
        axes.set_title(title)
    shown = max(map(len, spectra["singular_values"]))
    every = spectra["n_singular_values"].max()
    panels[1][0].set_xlabel(f"index of the singular value, the {shown} largest of {every}")
    for axes in panels[1][1:]:
        axes.set_xlabel("epoch")
    number_panel(panels[0][2])
    shared_legend(figure, panels[0][2])
    seed = spectra["seed"].iloc[0]
    figure.suptitle(f"left and middle: layer {layer}, head {head}; seed {seed}", fontsize=9.5)
    return figure


def _spectrum(axes: Axes, sigma: np.ndarray, **look: Any) -> None:
    axes.plot(np.arange(1, len(sigma) + 1), sigma / sigma[0], **look)


def _leading(axes: Axes, updates: pd.DataFrame, per_epoch: int, **look: Any) -> None:
    """The leading singular values of an update, the largest boldest; at the start they are 0."""
    sigma = np.stack(list(updates["singular_values"]))[:, :LEADING]
    sigma = np.vstack([np.zeros(sigma.shape[1]), sigma])
    epochs = np.array([0, *updates["step"]]) / per_epoch
    for i, values in enumerate(sigma.T):
        axes.plot(epochs, values, color=look["color"], lw=2.2 / (i + 1) ** 0.6)


def _ranks(axes: Axes, rows: pd.DataFrame, per_epoch: int, look: dict[str, Any]) -> None:
    """The mean over layers and heads, and a band over layers."""
    of_layers = rows.groupby(["step", "layer"])["stable_rank"].mean().unstack("layer")
    epochs = of_layers.index / per_epoch
    axes.plot(epochs, of_layers.mean(axis="columns"), lw=2.2, **look)
    low, high = (of_layers.agg(end, axis="columns") for end in ("min", "max"))
    band(axes, epochs, low, high, look["color"])
