"""The singular values of updates of whole matrices."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.low_rank_sparse.figures.panels import MATRICES, SEEDS, dotted, update_of
from lib.pages.marks import THEORY, band, shade, where
from lib.pages.panels import grid, sized
from lib.pages.style import (
    BLUE,
    GREENS,
    HINGE_COLOR,
    NULL_COLOR,
    PERMUTED_COLOR,
    READ_WIDTH,
    TRAINED_COLOR,
    number_panel,
)

FLOOR = 1e-9  # below it a share is rounding


def singular_values_of_steps(
    spectra: pd.DataFrame, matrix: str, steps: Sequence[int], configurations: Sequence[str]
) -> Figure:
    """Figure 2: the singular values of a matrix's update at several steps and at the last.

    Bars are the means over seeds, and whiskers reach from the least to the largest.
    """
    size = sized(2.5 * len(steps) + 2.5, 2.7 * len(configurations))
    figure, panels = grid(len(configurations), len(steps) + 1, size, sharex=True, sharey=True)
    for line, configuration in zip(panels, configurations, strict=True):
        rows = where(spectra, configuration=configuration, matrix=matrix, of="update")
        last = rows["step"].max()
        for axes, step in zip(line, [*steps, last], strict=True):
            of = where(rows, step=step)
            if len(of):
                sigma = np.stack(list(of["singular_values"])).astype(float)
                mean = sigma.mean(0)
                index = np.arange(1, len(mean) + 1)
                shades = [GREENS(0.95 if i <= 2 else 0.35) for i in index]
                axes.bar(index, mean, color=shades, width=0.8)
                reach = [mean - sigma.min(0), sigma.max(0) - mean]
                axes.errorbar(index, mean, reach, ls="none", color="black", lw=0.9)
            title = f"t = {step}" + (" (the last)" if step == last else "")
            axes.set(title=title, yscale="log", ylim=(1e-7, 10))
            axes.set_xticks([1, 2, 5, 10, 15, 20])
        of_update = rf"$\sigma_i$ of $\Delta {matrix[0]}_{matrix[2:]}(t)$"
        line[0].set_ylabel(f"{configuration} readout\n{of_update}")
    for axes in panels[-1]:
        axes.set_xlabel("index i")
    figure.suptitle(
        "dark: the two of the label-relevant patterns; bars: mean over seeds, whiskers: least to "
        "largest"
    )
    return figure


def spectra_and_nulls(spectra: pd.DataFrame, permuted: Mapping[str, str]) -> Figure:
    """The singular values of all updates at the end over the largest, beside those of the nulls.

    Nulls are Gaussian updates, and trainings on permuted labels.
    """

    def draw(axes: Axes, matrix: str, configuration: str, null: str) -> None:
        for name, of, color, style, label in (
            (configuration, "update", TRAINED_COLOR, "-", "trained"),
            (null, "update", PERMUTED_COLOR, "-", "trained on permuted labels"),
            (configuration, "gaussian", NULL_COLOR, ":", "Gaussian of equal norm"),
        ):
            rows = where(spectra, configuration=name, of=of, matrix=matrix)
            rows = where(rows, step=rows["step"].max())
            _spectrum(axes, rows, color=color, ls=style, marker="o", ms=2.5, label=label)
        axes.axvline(2.5, color="black", lw=0.8)
        axes.set(yscale="log", ylim=(1e-5, 1.5))

    figure = _of_configurations(
        permuted, 2.6, draw, r"$\sigma_i / \sigma_1$ at the end", xlabel="index i"
    )
    figure.suptitle(f"{SEEDS}; the line is behind the second")
    return figure


def beyond_two(spectra: pd.DataFrame, permuted: Mapping[str, str]) -> Figure:
    """The share of each update's squared singular values beyond the second, through training."""
    spectra = spectra.assign(
        beyond=[_beyond(np.asarray(sigma, float)) for sigma in spectra["singular_values"]]
    )

    def draw(axes: Axes, matrix: str, configuration: str, null: str) -> None:
        of = where(spectra, matrix=matrix)
        for name, color, label in (
            (configuration, TRAINED_COLOR, "trained"),
            (null, PERMUTED_COLOR, "permuted labels"),
        ):
            chosen = where(of, configuration=name, of="update")
            dotted(axes, chosen, "step", "beyond", color, label, ms=3)
        gaussian = where(of, configuration=configuration, of="gaussian")["beyond"].mean()
        axes.axhline(gaussian, color=NULL_COLOR, ls=":", label="Gaussian of equal norm")
        axes.set(yscale="log", ylim=(5e-6, 1.5))

    figure = _of_configurations(permuted, 2.5, draw, r"$1 - e_2$", xlabel="step t")
    figure.suptitle(f"the share of the squares beyond the second singular value; {SEEDS}")
    return figure


def singular_values_by_noise(sweep: pd.DataFrame) -> Figure:
    """The singular values of the update of W_K at each noise: without noise there are M - 1."""
    rows = where(sweep, sweep="noise")
    noises = sorted(rows["value"].unique())
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for i, noise in enumerate(noises):
        sigma = np.stack(list(where(rows, value=noise)["W_K_singular_values"])).astype(float)
        index = np.arange(1, sigma.shape[1] + 1)
        color = shade(i, len(noises))
        label = f"noise $c_0$ = {noise:g}"
        axes.plot(index, sigma.mean(0), color=color, marker="o", ms=3, label=label)
        band(axes, index, sigma.min(0), sigma.max(0), color)
    n_patterns = int(rows["n_patterns"].iloc[0])
    behind = f"behind M - 1 = {n_patterns - 1}"
    axes.axvline(n_patterns - 0.5, **THEORY, lw=1, label=behind)
    axes.set(yscale="log", xlabel="index i", ylabel=r"$\sigma_i$ of $\Delta W_K$ at the end")
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize=7.5, loc="lower left")
    axes.set_title(SEEDS)
    return figure


def rank_follows_patterns(sweep: pd.DataFrame, labelled: Mapping[str, str]) -> Figure:
    """The singular values over the largest, and the loss with all updates cut to k, k - 1 and 2.

    k is the number of label-relevant patterns; a ring marks the k-th singular value. The null of a
    cut is a projection on k random directions. Each sweep has a row, by its description.
    """
    size = (READ_WIDTH, 2.7 * len(labelled))
    figure, panels = grid(len(labelled), len(MATRICES) + 1, size)
    for line, (name, text) in zip(panels, labelled.items(), strict=True):
        rows = where(sweep, sweep=name)
        labels = list(rows.sort_values("value")["labels"].unique())
        *of_matrices, last = line
        for axes, matrix in zip(of_matrices, MATRICES, strict=True):
            for i, label in enumerate(labels):
                of = where(rows, labels=label)
                k = int(of["value"].iloc[0])
                style = {"color": shade(i, len(labels)), "marker": "o"}
                sigma = _spectrum(
                    axes,
                    of,
                    f"{matrix}_singular_values",
                    8,
                    ms=3,
                    label=f"{label} (k = {k})",
                    **style,
                )
                axes.plot([k], sigma[k - 1 : k], ls="none", ms=8, mfc="none", **style)
            axes.set(yscale="log", ylim=(1e-3, 1.5), xticks=range(1, 9), title=update_of(matrix))
        for column, color, mark, what in (
            ("hinge_at_rank_below", HINGE_COLOR, "v", "rank k - 1"),
            ("hinge_at_rank_2", BLUE, "s", "rank 2"),
            ("hinge_at_rank_k", TRAINED_COLOR, "o", "rank k"),
            ("hinge_in_random_directions", NULL_COLOR, "x", "k random directions"),
        ):
            dotted(last, rows, "value", column, color, what, marker=mark)
        ticks = sorted(rows["value"].unique())
        last.set(xticks=ticks, ylim=(-0.03, 1.03), title="test hinge loss at")
        line[0].set_ylabel(f"{text}\n" + r"$\sigma_i / \sigma_1$")
        line[0].legend(fontsize=7, loc="lower left")
    for axes in panels[-1][:-1]:
        axes.set_xlabel("index i")
    panels[-1][-1].set_xlabel("label-relevant patterns k")
    panels[-1][-1].legend(fontsize=7.5, loc="center")
    figure.suptitle(f"the ring is the k-th singular value; {SEEDS}")
    return figure


def _of_configurations(
    permuted: Mapping[str, str],
    height: float,
    draw: Callable[[Axes, str, str, str], None],
    quantity: str,
    xlabel: str,
) -> Figure:
    """A figure with a row for each configuration and its null, and a panel for each matrix."""
    size = (2.7 * len(MATRICES), height * len(permuted) + 0.3)
    figure, panels = grid(len(permuted), len(MATRICES), size, sharey=True)
    for line, (configuration, null) in zip(panels, permuted.items(), strict=True):
        for axes, matrix in zip(line, MATRICES, strict=True):
            draw(axes, matrix, configuration, null)
        line[0].set_ylabel(f"{configuration} readout\n{quantity}")
    for axes, matrix in zip(panels[0], MATRICES, strict=True):
        axes.set_title(update_of(matrix))
    for axes in panels[-1]:
        axes.set_xlabel(xlabel)
    panels[0][0].legend(loc="lower left", fontsize=7)
    panels[0][0].set_xlabel(xlabel)  # which it needs where it is shown alone
    number_panel(panels[0][0])
    return figure


def _spectrum(
    axes: Axes,
    rows: pd.DataFrame,
    column: str = "singular_values",
    top: int | None = None,
    **line: object,
) -> np.ndarray:
    """Draw singular values over the largest, and give their mean over the rows."""
    if rows.empty:
        return np.zeros(0)
    sigma = np.stack(list(rows[column])).astype(float)[:, :top]
    sigma = np.maximum(sigma / np.where(sigma[:, :1] > 0, sigma[:, :1], 1), FLOOR)
    index = np.arange(1, sigma.shape[1] + 1)
    (drawn,) = axes.plot(index, sigma.mean(0), **line)  # pyright: ignore
    band(axes, index, sigma.min(0), sigma.max(0), drawn.get_color())
    return sigma.mean(0)


def _beyond(sigma: np.ndarray) -> float:
    """The share 1 - e_2, or the floor where it is below."""
    total = np.square(sigma).sum()
    return float(max(np.square(sigma[2:]).sum() / total, FLOOR)) if total > 0 else 1.0
