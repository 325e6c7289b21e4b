"""The singular values of updates of whole matrices, and where their leading directions lie."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib.pages.style import (
    BLUE,
    GREENS,
    HINGE_COLOR,
    NULL_COLOR,
    PERMUTED_COLOR,
    READ_WIDTH,
    TRAINED_COLOR,
    VIRIDIS,
    ranged,
    sized,
)

MATRICES = ("W_Q", "W_K", "W_V", "W_O")
FLOOR = 1e-9  # below it a share is rounding


def singular_values_of_steps(
    spectra: pd.DataFrame, matrix: str, steps: Sequence[int], configurations: Sequence[str]
) -> Figure:
    """Figure 2: the singular values of a matrix's update at several steps and at the last; bars at
    the mean over seeds, whiskers from the least to the largest.
    """
    chosen = spectra[(spectra["matrix"] == matrix) & (spectra["of"] == "update")]
    figure, panels = plt.subplots(
        len(configurations),
        len(steps) + 1,
        figsize=sized(2.5 * len(steps) + 2.5, 2.7 * len(configurations)),
        sharex=True,
        sharey=True,
        squeeze=False,
    )
    for line, configuration in zip(panels, configurations, strict=True):
        rows = chosen[chosen["configuration"] == configuration]
        last = rows["step"].max()
        for axes, step in zip(line, [*steps, last], strict=True):
            of = rows[rows["step"] == step]
            if len(of):
                sigma = np.stack(list(of["singular_values"])).astype(float)
                mean = sigma.mean(0)
                shades = [GREENS(0.95) if i < 2 else GREENS(0.35) for i in range(len(mean))]
                axes.bar(np.arange(1, len(mean) + 1), mean, color=shades, width=0.8)
                reach = [mean - sigma.min(0), sigma.max(0) - mean]
                axes.errorbar(
                    np.arange(1, len(mean) + 1), mean, reach, ls="none", color="black", lw=0.9
                )
            axes.set(
                title=f"t = {step}" + (" (the last)" if step == last else ""),
                yscale="log",
                ylim=(1e-7, 10),
            )
            axes.set_xticks([1, 2, 5, 10, 15, 20])
        line[0].set_ylabel(
            f"{configuration} readout\n" + rf"$\sigma_i$ of $\Delta {matrix[0]}_{matrix[2:]}(t)$"
        )
    for axes in panels[-1]:
        axes.set_xlabel("index i")
    figure.suptitle(
        "dark: the two of the label-relevant patterns; bars: mean over seeds, whiskers: least to "
        "largest"
    )
    return figure


def spectra_and_nulls(spectra: pd.DataFrame, permuted: Mapping[str, str]) -> Figure:
    """The singular values of all four updates at the end, over the largest, beside those of
    Gaussian updates and of trainings on permuted labels; mean over seeds, least to largest shaded.
    """
    figure, panels = _panels(len(permuted), 2.6)
    for line, (configuration, null) in zip(panels, permuted.items(), strict=True):
        sources = [
            (configuration, "update", TRAINED_COLOR, "-", "trained"),
            (null, "update", PERMUTED_COLOR, "--", "trained on permuted labels"),
            (configuration, "gaussian", NULL_COLOR, ":", "Gaussian of equal norm"),
        ]
        for axes, matrix in zip(line, MATRICES, strict=True):
            for name, of, color, style, label in sources:
                rows = spectra[(spectra["configuration"] == name) & (spectra["of"] == of)]
                rows = rows[(rows["matrix"] == matrix) & (rows["step"] == rows["step"].max())]
                _spectrum(axes, rows, color=color, ls=style, marker="o", ms=2.5, label=label)
            axes.axvline(2.5, color=NULL_COLOR, lw=0.8)
            axes.set(yscale="log", ylim=(1e-5, 1.5))
        line[0].set_ylabel(f"{configuration} readout\n" + r"$\sigma_i / \sigma_1$ at the end")
    for axes, matrix in zip(panels[0], MATRICES, strict=True):
        axes.set_title(rf"$\Delta {matrix[0]}_{matrix[2:]}$")
    for axes in panels[-1]:
        axes.set_xlabel("index i")
    panels[0][0].legend(loc="lower left", fontsize=7)
    figure.suptitle("mean over seeds, least to largest shaded; the line is behind the second")
    return figure


def beyond_two(spectra: pd.DataFrame, permuted: Mapping[str, str]) -> Figure:
    """The share of each update's squared singular values beyond the second, 1 - e_2, through
    training.
    """
    rows = spectra.assign(
        beyond=[_beyond(np.asarray(sigma, float)) for sigma in spectra["singular_values"]]
    )
    figure, panels = _panels(len(permuted), 2.5)
    for line, (configuration, null) in zip(panels, permuted.items(), strict=True):
        for axes, matrix in zip(line, MATRICES, strict=True):
            of = rows[rows["matrix"] == matrix]
            for name, color, label in (
                (configuration, TRAINED_COLOR, "trained"),
                (null, PERMUTED_COLOR, "permuted labels"),
            ):
                chosen = of[(of["configuration"] == name) & (of["of"] == "update")]
                ranged(axes, chosen, "step", "beyond", color=color, marker="o", ms=3, label=label)
            gaussian = of[(of["configuration"] == configuration) & (of["of"] == "gaussian")][
                "beyond"
            ]
            axes.axhline(gaussian.mean(), color=NULL_COLOR, ls=":", label="Gaussian of equal norm")
            axes.set(yscale="log", ylim=(5e-6, 1.5))
        line[0].set_ylabel(f"{configuration} readout\n" + r"$1 - e_2$")
    for axes, matrix in zip(panels[0], MATRICES, strict=True):
        axes.set_title(rf"$\Delta {matrix[0]}_{matrix[2:]}$")
    for axes in panels[-1]:
        axes.set_xlabel("step t")
    panels[0][0].legend(loc="lower left", fontsize=7)
    figure.suptitle(
        "the share of the squares beyond the second singular value; mean over seeds, least to "
        "largest shaded"
    )
    return figure


def singular_values_by_noise(sweep: pd.DataFrame) -> Figure:
    """The singular values of the update of W_K at each noise of the tokens: without noise there are
    M - 1.
    """
    rows = sweep[sweep["sweep"] == "noise"]
    noises = sorted(rows["value"].unique())
    figure, axes = plt.subplots(figsize=(6, 3.6))
    for i, noise in enumerate(noises):
        sigma = np.stack(list(rows[rows["value"] == noise]["W_K_singular_values"])).astype(float)
        index, color = np.arange(1, sigma.shape[1] + 1), VIRIDIS(0.9 * i / max(1, len(noises) - 1))
        axes.plot(
            index, sigma.mean(0), color=color, marker="o", ms=3, label=f"noise $c_0$ = {noise:g}"
        )
        axes.fill_between(index, sigma.min(0), sigma.max(0), color=color, alpha=0.16, lw=0)
    n_patterns = int(rows["n_patterns"].iloc[0])
    axes.axvline(
        n_patterns - 0.5, color=NULL_COLOR, ls="--", lw=1, label=f"behind M - 1 = {n_patterns - 1}"
    )
    axes.set(yscale="log", xlabel="index i", ylabel=r"$\sigma_i$ of $\Delta W_K$ at the end")
    axes.locator_params(axis="x", integer=True)
    axes.legend(fontsize=7.5, loc="lower left")
    axes.set_title("mean over seeds, least to largest shaded")
    return figure


def rank_follows_patterns(sweep: pd.DataFrame, labelled: Mapping[str, str]) -> Figure:
    """Singular values over the largest, of all four updates, with a ring at the k-th, k the number
    of label-relevant patterns; and the hinge loss with all updates cut to ranks k, k - 1 and 2. A
    row per sweep, by its description.
    """
    figure, panels = plt.subplots(
        len(labelled), len(MATRICES) + 1, figsize=(READ_WIDTH, 2.7 * len(labelled)), squeeze=False
    )
    for line, (name, text) in zip(panels, labelled.items(), strict=True):
        chosen = sweep[sweep["sweep"] == name]
        labels = list(chosen.sort_values("value")["labels"].unique())
        for axes, matrix in zip(line, MATRICES, strict=False):
            for i, label in enumerate(labels):
                of = chosen[chosen["labels"] == label]
                color, k = VIRIDIS(0.9 * i / max(1, len(labels) - 1)), int(of["value"].iloc[0])
                sigma = _spectrum(
                    axes,
                    of,
                    f"{matrix}_singular_values",
                    8,
                    color=color,
                    marker="o",
                    ms=3,
                    label=f"{label} (k = {k})",
                )
                axes.plot([k], sigma[k - 1 : k], "o", ms=8, mfc="none", color=color)
            axes.set(
                yscale="log",
                ylim=(1e-3, 1.5),
                xticks=range(1, 9),
                title=rf"$\Delta {matrix[0]}_{matrix[2:]}$",
            )
        for column, color, mark, what in (
            ("hinge_at_rank_below", HINGE_COLOR, "v", "rank k - 1"),
            ("hinge_at_rank_2", NULL_COLOR, "s", "rank 2"),
            ("hinge_at_rank_k", TRAINED_COLOR, "o", "rank k"),
        ):
            ranged(line[-1], chosen, "value", column, color=color, marker=mark, ms=4, label=what)
        line[-1].set(
            xticks=sorted(chosen["value"].unique()), ylim=(-0.03, 1.03), title="test hinge loss at"
        )
        line[-1].legend(fontsize=7.5)
        line[0].set_ylabel(f"{text}\n" + r"$\sigma_i / \sigma_1$")
        line[0].legend(fontsize=7, loc="lower left")
    for axes in panels[-1][:-1]:
        axes.set_xlabel("index i")
    panels[-1][-1].set_xlabel("label-relevant patterns k")
    figure.suptitle("the ring is the k-th singular value; mean over seeds, least to largest shaded")
    return figure


def patterns_and_nulls(sweep: pd.DataFrame, labelled: Mapping[str, str], grouped: str) -> Figure:
    """What is judged of trainings with other labellings, against the number k of label-relevant
    patterns, beside the same of permuted labels (the sweep of that name and `_permuted`), of
    Gaussian updates, and of random directions.

    It is what is left of the squares beyond the k-th singular value, and the loss at rank k; of the
    sweep `grouped`, the gap behind the k-th for W_Q and W_K, what is left beyond the second for W_V
    and W_O, and the loss at rank 2.
    """
    figure, panels = plt.subplots(
        len(labelled), len(MATRICES) + 1, figsize=(READ_WIDTH, 2.7 * len(labelled)), squeeze=False
    )
    for line, (name, text) in zip(panels, labelled.items(), strict=True):
        own, permuted = (sweep[sweep["sweep"] == one] for one in (name, f"{name}_permuted"))
        for axes, matrix in zip(line, MATRICES, strict=False):
            gap = name == grouped and matrix in ("W_Q", "W_K")
            column = "gap" if gap else "energy_2" if name == grouped else "energy"
            for rows, of, color, style, label in (
                (own, f"{matrix}_{column}", TRAINED_COLOR, "-", "trained"),
                (permuted, f"{matrix}_{column}", PERMUTED_COLOR, "--", "permuted labels"),
                (own, f"gaussian_{matrix}_{column}", NULL_COLOR, ":", "Gaussian of equal norm"),
            ):
                shown = rows.assign(shown=rows[of] if gap else np.maximum(1 - rows[of], FLOOR))
                ranged(
                    axes,
                    shown,
                    "value",
                    "shown",
                    color=color,
                    ls=style,
                    marker="o",
                    ms=4,
                    label=label,
                )
            what = (
                r"$\sigma_{k+1} / \sigma_k$"
                if gap
                else "$1 - e_2$"
                if name == grouped
                else "$1 - e_k$"
            )
            axes.set(
                title=rf"{what} of $\Delta {matrix[0]}_{matrix[2:]}$",
                xticks=sorted(own["value"].unique()),
            )
            axes.set(**({"ylim": (-0.03, 1.03)} if gap else {"yscale": "log", "ylim": (1e-5, 1.5)}))
        rank = "2" if name == grouped else "k"
        for column, color, mark, label in (
            (f"hinge_at_rank_{rank}", TRAINED_COLOR, "o", f"rank {rank}"),
            ("hinge_in_random_directions", HINGE_COLOR, "x", "k random directions"),
            ("hinge_of_gaussian", NULL_COLOR, "s", "Gaussian updates"),
        ):
            ranged(line[-1], own, "value", column, color=color, marker=mark, ms=4, label=label)
        line[-1].set(
            xticks=sorted(own["value"].unique()), ylim=(-0.03, None), title="test hinge loss with"
        )
        line[-1].legend(fontsize=7, loc="center")
        line[0].set_ylabel(text)
        line[0].legend(fontsize=7, loc="best")
    for axes in panels[-1]:
        axes.set_xlabel("label-relevant patterns k")
    figure.suptitle("mean over seeds, least to largest shaded")
    return figure


def directions_of_updates(directions: pd.DataFrame, permuted: Mapping[str, str]) -> Figure:
    """How far the two leading directions of each update lie in the span of the patterns, through
    training.
    """
    places = [
        ("W_K", "input"),
        ("W_Q", "output"),
        ("W_V", "input"),
        ("W_V", "output"),
        ("W_O", "input"),
    ]
    spans = {
        "discriminative": (BLUE, r"span{$\mu_1, \mu_2$}", 2),
        "with mean irrelevant": (TRAINED_COLOR, r"span{$\mu_1, \mu_2$, mean irrelevant}", 3),
    }
    figure, panels = plt.subplots(
        len(permuted),
        len(places),
        figsize=(2.3 * len(places), 2.9 * len(permuted)),
        sharey=True,
        squeeze=False,
    )
    for line, (configuration, null) in zip(panels, permuted.items(), strict=True):
        for axes, (matrix, side) in zip(line, places, strict=True):
            chosen = directions[(directions["matrix"] == matrix) & (directions["side"] == side)]
            for span, (color, name, n) in spans.items():
                of = chosen[chosen["span"] == span]
                own = of[of["configuration"] == configuration]
                ranged(axes, own, "step", "alignment", color=color, marker="o", ms=3, label=name)
                axes.axhline(n / of["dimension"].iloc[0], color=color, ls="--", lw=1)
            of = chosen[
                (chosen["span"] == "with mean irrelevant") & (chosen["configuration"] == null)
            ]
            ranged(
                axes,
                of,
                "step",
                "alignment",
                color=PERMUTED_COLOR,
                ls=":",
                label="the same, permuted labels",
            )
            axes.set(title=rf"$\Delta {matrix[0]}_{matrix[2:]}$, {side} side", ylim=(0, 1.04))
        line[0].set_ylabel(
            f"{configuration} readout\nmean squared cosine of the two\nleading directions with "
            "the span"
        )
    for axes in panels[-1]:
        axes.set_xlabel("step t")
    figure.legend(*panels[0][-1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.suptitle("mean over seeds, least to largest shaded; dashed: random directions")
    return figure


def _panels(n_rows: int, height: float) -> tuple[Figure, np.ndarray]:
    return plt.subplots(
        n_rows,
        len(MATRICES),
        figsize=(2.7 * len(MATRICES), height * n_rows + 0.3),
        sharey=True,
        squeeze=False,
    )


def _spectrum(
    axes: Axes,
    rows: pd.DataFrame,
    column: str = "singular_values",
    top: int | None = None,
    **line: object,
) -> np.ndarray:
    """Singular values over the largest: the mean over rows, with a band from the least to the
    largest; the mean.
    """
    if rows.empty:
        return np.zeros(0)
    sigma = np.stack(list(rows[column])).astype(float)[:, :top]
    sigma = np.maximum(sigma / np.where(sigma[:, :1] > 0, sigma[:, :1], 1), FLOOR)
    index = np.arange(1, sigma.shape[1] + 1)
    (drawn,) = axes.plot(index, sigma.mean(0), **line)  # pyright: ignore
    axes.fill_between(index, sigma.min(0), sigma.max(0), color=drawn.get_color(), alpha=0.16, lw=0)
    return sigma.mean(0)


def _beyond(sigma: np.ndarray) -> float:
    """1 - e_2, not below the floor."""
    total = np.square(sigma).sum()
    return float(max(np.square(sigma[2:]).sum() / total, FLOOR)) if total > 0 else 1.0
