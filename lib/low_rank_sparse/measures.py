"""What claims say of trainings, cuts and sweeps: a value per seed, also by what varies."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lib.files.tables import pick
from lib.low_rank_sparse.energy import gap, leading_energy, nuclear_tail, of_matrices

BySeed = pd.Series
ByValue = dict[str, pd.Series]
Measures = dict[str, BySeed | ByValue]

# Power laws: the sweep, and the column that follows the value that varies.
EXPONENTS = {
    "slope_of_steps_in_relevant": ("relevant", "n_batches"),
    "slope_of_steps_in_relevant_with_confusion": ("relevant_with_confusion", "n_batches"),
    "slope_of_steps_in_step_size": ("step_size", "n_batches"),
    "slope_of_third_in_patterns": ("patterns", "W_K_next"),
    "slope_of_tail_in_patterns": ("patterns", "W_K_tail"),
}


def training_measures(training: pd.DataFrame, losses: pd.DataFrame) -> Measures:
    """What the training reached, and the largest loss of a batch after the first fitted one."""
    last = pick(training, step=training["step"].max())
    names = ["hinge", "accuracy", "margin", "attention", "attention_of_relevant", "fitted_step"]
    since = losses["seed"].map(last["fitted_step"].where(last["fitted_step"] >= 0))
    highest = losses[losses["step"] >= since].groupby("seed")["loss"].max()
    return {**{name: last[name] for name in names}, "loss_once_fitted": highest.reindex(last.index)}


class Updates(NamedTuple):
    """Of each matrix, by its letter: a row per seed at the end, and the energies on the way."""

    energy: pd.DataFrame
    gap: pd.DataFrame
    tail: pd.DataFrame
    energy_by_step: dict[str, pd.DataFrame]


def updates(spectra: pd.DataFrame, steps: Sequence[int]) -> Updates:
    """How low the rank of the updates is at the end, and at those of the steps that were saved."""
    end = spectra[spectra["step"] == spectra["step"].max()]
    return Updates(
        of_matrices(end, leading_energy),
        of_matrices(end, gap),
        of_matrices(end, nuclear_tail),
        {
            str(step): of_matrices(of, leading_energy)
            for step, of in spectra.groupby("step")
            if step in steps
        },
    )


def update_measures(spectra: pd.DataFrame, steps: Sequence[int], n_patterns: int) -> Measures:
    """How low the rank of the updates is, and of Gaussian ones.

    Matrices that are judged together are judged by the worse.
    """
    update = spectra[spectra["of"] == "update"]
    gaussian = spectra[spectra["of"] == "gaussian"]
    of = updates(update, steps)

    def rank(rows: pd.DataFrame, matrix: str) -> pd.Series:
        end = rows["step"] == rows["step"].max()
        return pick(rows[end], matrix=matrix)["numerical_rank"]

    def worse(letters: list[str]) -> ByValue:
        return {step: energy[letters].min(axis=1) for step, energy in of.energy_by_step.items()}

    return {
        "energy_Q": of.energy["Q"],
        "energy_K": of.energy["K"],
        "energy_V": of.energy["V"],
        "energy_O": of.energy["O"],
        "numerical_rank_Q": rank(update, "W_Q"),
        "numerical_rank_K": rank(update, "W_K"),
        "numerical_rank_V": rank(update, "W_V"),
        "numerical_rank_O": rank(update, "W_O"),
        "rank_beyond_K": rank(update, "W_K") - (n_patterns - 1),
        "gaussian_rank_beyond_K": rank(gaussian, "W_K") - (n_patterns - 1),
        "gaussian_energy": of_matrices(gaussian, leading_energy).max(axis=1),
        "gap_QK": of.gap[["Q", "K"]].max(axis=1),
        "nuclear_tail_QK": of.tail[["Q", "K"]].max(axis=1),
        "energy_QK_by_step": worse(["Q", "K"]),
        "gap_VO": of.gap[["V", "O"]].max(axis=1),
        "nuclear_tail_VO": of.tail[["V", "O"]].max(axis=1),
        "energy_VO_by_step": worse(["V", "O"]),
    }


def null_measures(
    spectra: pd.DataFrame, directions: pd.DataFrame, neurons: pd.DataFrame, steps: Sequence[int]
) -> Measures:
    """How near to low rank trainings on permuted labels come; nothing where there are none.

    Matrices that are judged together are judged by the one nearest to low rank. On the way V stands
    alone: it comes near by itself.
    """
    if spectra.empty:
        return {}
    of = updates(spectra[spectra["of"] == "update"], steps)
    lies = direction_measures(directions)

    def nearest_of(letters: list[str]) -> ByValue:
        return {step: energy[letters].max(axis=1) for step, energy in of.energy_by_step.items()}

    return {
        "permuted_energy_Q": of.energy["Q"],
        "permuted_energy_K": of.energy["K"],
        "permuted_energy_V": of.energy["V"],
        "permuted_energy_O": of.energy["O"],
        "permuted_gap_QK": of.gap[["Q", "K"]].min(axis=1),
        "permuted_gap_VO": of.gap[["V", "O"]].min(axis=1),
        "permuted_nuclear_tail_QK": of.tail[["Q", "K"]].min(axis=1),
        "permuted_nuclear_tail_VO": of.tail[["V", "O"]].min(axis=1),
        "permuted_energy_QK_by_step": nearest_of(["Q", "K"]),
        "permuted_energy_V_by_step": nearest_of(["V"]),
        "permuted_energy_O_by_step": nearest_of(["O"]),
        "permuted_alignment_K": lies["alignment_K"],
        "permuted_alignment_QVO": lies["alignment_QVO"],
        "permuted_bimodality": pick(neurons)["bimodality"],
    }


def truncation_measures(table: pd.DataFrame) -> Measures:
    """What cuts of the updates cost: the losses there, and what some change of the scores.

    One row per seed, `kind` of cut and `rank`, with the scores of the model; all updates at the
    largest rank are whole.
    """
    whole = pick(table, kind="all", rank=table[table["kind"] == "all"]["rank"].max())
    two = pick(table, kind="all", rank=2)
    chance = pick(table, kind="random directions")

    def hinge(kind: str, **where: Any) -> pd.Series:
        return pick(table, kind=kind, **where)["hinge"]

    return {
        "rank_2_cost": two["hinge"] - whole["hinge"],
        "rank_2_attention_lost": whole["attention"] - two["attention"],
        "random_directions_attention_lost": whole["attention"] - chance["attention"],
        "random_directions_attention_of_relevant_lost": whole["attention_of_relevant"]
        - chance["attention_of_relevant"],
        "rank_0_hinge": hinge("all", rank=0),
        "rank_1_hinge": hinge("all", rank=1),
        "pairs_3_and_4_hinge": hinge("pairs 3 and 4"),
        "random_directions_hinge": hinge("random directions"),
        "gaussian_hinge": hinge("gaussian"),
        "without_attention_hinge": hinge("W_Q and W_K", rank=0),
        "rank_1_attention_hinge": hinge("W_Q and W_K", rank=1),
    }


def direction_measures(table: pd.DataFrame) -> dict[str, BySeed]:
    """Where the two leading directions of the updates lie at the last step.

    One row per seed, saved step, `matrix`, `side` and `span`, with the `alignment`. W_K counts on
    its tokens' side; of the others the least counts, the tokens' side of W_Q left out.
    """
    last = table[table["step"] == table["step"].max()]
    of_all = last[last["span"] == "with mean irrelevant"]
    tokens_of_Q = (of_all["matrix"] == "W_Q") & (of_all["side"] == "input")
    others = of_all[(of_all["matrix"] != "W_K") & ~tokens_of_Q]
    alone = pick(last, matrix="W_K", side="input", span="discriminative")
    return {
        "alignment_K": pick(of_all, matrix="W_K", side="input")["alignment"],
        "alignment_QVO": others.groupby("seed")["alignment"].min(),
        "alignment_without_mean": alone["alignment"],
    }


def neuron_measures(table: pd.DataFrame) -> Measures:
    """How the neurons part: one row per seed, with `norm_groups` and the `initial_norm`."""
    rows = pick(table)
    return {
        "small_share": rows["small_share"],
        "bimodality": rows["bimodality"],
        "large_over_small": rows["large_norm"] / rows["small_norm"],
        "small_over_initial": rows["small_norm"] / rows["initial_norm"],
    }


def pruning_measures(
    table: pd.DataFrame,
    *,
    pruning_rate: float,
    moderate_rate: float,
    strong_rate: float,
    slack: float,
    corollary_from: float,
) -> Measures:
    """What can be removed, and the two halves of corollary 1.

    Its halves are all small neurons, then a share of the large ones. At a rate the nearest of the
    table counts.
    """
    neurons = table[table["what"] == "neurons"]
    smallest = neurons[neurons["order"] == "smallest"]
    large = table[table["what"] == "large neurons"]

    def near(rows: pd.DataFrame, rate: float) -> pd.DataFrame:
        return pick(rows, rate=nearest(list(rows["rate"]), rate))

    measures: Measures = {}
    for order in ("smallest", "random", "largest"):
        rows = neurons[neurons["order"] == order]
        as_many = pick(table, what="as many as small", order=order)
        measures[f"harmless_{order}"] = harmless_rates(rows, "hinge", slack)
        measures[f"pruned_{order}"] = near(rows, pruning_rate)["hinge"]
        measures[f"as_many_{order}"] = as_many["hinge"]
    hinge = large.pivot_table(index="seed", columns="rate", values="hinge")
    return measures | {
        "neurons_moderate_rescaled": near(smallest, moderate_rate)["rescaled_hinge"],
        "neurons_strong_rescaled": near(smallest, strong_rate)["rescaled_hinge"],
        "values": pick(table, what="rows of W_V")["hinge"],
        "without_small_cost": hinge[0.0] - pick(smallest, rate=0)["hinge"],
        "large_least_rise": least_rise(hinge, corollary_from),
    }


def adapter_measures(table: pd.DataFrame) -> Measures:
    """The loss with adapters, by rank; nothing where there are none."""
    return {"adapter_hinge": by_value(table, "hinge", "rank")} if len(table) else {}


def sweep_measures(
    sweep: pd.DataFrame, samples: pd.DataFrame, easy_n_relevant: int, n_patterns: int
) -> Measures:
    """What every sweep shows, the exponents of each seed's power laws, and two controls."""
    measures: Measures = {}
    for name, rows in sweep.groupby("sweep"):
        measures |= {f"{name}_{key}": of for key, of in one_sweep(rows).items()}
    for name, (one, column) in EXPONENTS.items():
        fitted = sweep[sweep["in_fit"] & (sweep["sweep"] == one)]
        measures[name] = exponents(fitted, "value", column)
    for name, rows in samples.groupby("sweep"):
        measures[f"slope_of_{name}_in_relevant"] = exponents(rows, "n_relevant", "n_needed")
    easy = pick(sweep, sweep="relevant_with_confusion", value=easy_n_relevant)
    clean = pick(sweep, sweep="noise", value=0)
    beyond = [sigma[n_patterns - 1] / sigma[0] for sigma in clean["W_K_singular_values"]]
    measures["beyond_patterns_without_noise"] = pd.Series(beyond, clean.index, dtype=float)
    measures["easy_without_attention_hinge"] = easy["hinge_without_attention"]
    return measures


def one_sweep(rows: pd.DataFrame) -> dict[str, ByValue]:
    """What one sweep shows, by the value that varies; one of permuted labels is a null."""
    labelled = bool((rows["varies"] == "labels").all())
    columns = nearness_of_null(rows) if rows["permuted"].all() else low_rank_columns(rows, labelled)
    return {name: by_value(rows.assign(of=column), "of") for name, column in columns.items()}


def low_rank_columns(rows: pd.DataFrame, labelled: bool) -> dict[str, pd.Series]:
    """Of each training: the loss, what rank 2 adds to it, and how low the rank of the updates is.

    Matrices that are judged together are judged by the worse: the energy in the leading k
    directions, k the number of label-relevant patterns, and the gap behind them. Where k varies,
    with the labels, the same at 2, the losses at k and k - 1, and nulls; else how the neurons part.
    """
    shown = {
        "hinge": rows["hinge"],
        "rank_2_cost": rows["hinge_at_rank_2"] - rows["hinge"],
        "energy_QK": rows[["W_Q_energy", "W_K_energy"]].min(axis=1),
        "gap_QK": rows[["W_Q_gap", "W_K_gap"]].max(axis=1),
    }
    if labelled:
        shown["energy_2_QK"] = rows[["W_Q_energy_2", "W_K_energy_2"]].min(axis=1)
        shown["gap_2_QK"] = rows[["W_Q_gap_2", "W_K_gap_2"]].min(axis=1)
    shown["energy_VO"] = rows[["W_V_energy", "W_O_energy"]].min(axis=1)
    shown["gap_VO"] = rows[["W_V_gap", "W_O_gap"]].max(axis=1)
    if not labelled:
        shown["small_share"] = rows["small_share"]
        shown["large_over_small"] = rows["large_over_small"]
        return shown
    four = [f"gaussian_{matrix}" for matrix in ("W_Q", "W_K", "W_V", "W_O")]
    return {
        **shown,
        "energy_2_VO": rows[["W_V_energy_2", "W_O_energy_2"]].min(axis=1),
        "gap_2_VO": rows[["W_V_gap_2", "W_O_gap_2"]].min(axis=1),
        "hinge_at_rank_below": rows["hinge_at_rank_below"],
        "hinge_at_rank_k": rows["hinge_at_rank_k"],
        "gaussian_energy": rows[[f"{one}_energy" for one in four]].max(axis=1),
        "gaussian_energy_2": rows[[f"{one}_energy_2" for one in four]].max(axis=1),
        "gaussian_gap": rows[[f"{one}_gap" for one in four]].min(axis=1),
        "random_directions_hinge": rows["hinge_in_random_directions"],
        "gaussian_hinge": rows["hinge_of_gaussian"],
    }


def nearness_of_null(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """How near to low rank the updates of each training of a null come, by the nearest matrix.

    The largest energy in the leading k directions and in the leading two, and the least gap.
    """
    return {
        "energy_QK": rows[["W_Q_energy", "W_K_energy"]].max(axis=1),
        "energy_2_QK": rows[["W_Q_energy_2", "W_K_energy_2"]].max(axis=1),
        "gap_QK": rows[["W_Q_gap", "W_K_gap"]].min(axis=1),
        "energy_V": rows["W_V_energy"],
        "energy_2_V": rows["W_V_energy_2"],
        "gap_V": rows["W_V_gap"],
        "energy_O": rows["W_O_energy"],
        "energy_2_O": rows["W_O_energy_2"],
        "gap_O": rows["W_O_gap"],
    }


def nearest(values: Sequence[float], wanted: float) -> float:
    """The value that is nearest to the wanted one; of two as near, the lower."""
    return min(sorted(values), key=lambda value: abs(value - wanted))


def log_log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    r"""The exponent b of $y \approx c x^b$: the least-squares slope of log y on log x.

    Raises `ValueError` for fewer than two different x, or where a value is not positive.
    """
    if len(set(x)) < 2 or min(*x, *y) <= 0:
        raise ValueError(
            f"wanted positive values at two different x or more, got {list(x)} and {list(y)}"
        )
    u = np.log(x) - np.log(x).mean()
    return float(u @ np.log(y) / (u @ u))


def exponents(table: pd.DataFrame, x: str, y: str) -> pd.Series:
    """The exponent of each seed's power law of column y in column x.

    NaN where a seed has one point, or some y <= 0.
    """
    fitted: dict[object, float] = {}
    for seed, of in table.groupby("seed"):
        known = len(of) > 1 and (of[y] > 0).all()
        fitted[seed] = log_log_slope(of[x].tolist(), of[y].tolist()) if known else np.nan
    return pd.Series(fitted, dtype=float)


def harmless_rate(rates: Sequence[float], losses: Sequence[float], slack: float) -> float:
    """The largest of rising rates up to which no loss exceeds the first by more than a slack."""
    harmful = np.flatnonzero(np.asarray(losses) > losses[0] + slack)
    return rates[(harmful[0] if len(harmful) else len(rates)) - 1]


def harmless_rates(table: pd.DataFrame, loss: str, slack: float) -> pd.Series:
    """The harmless rate of each seed, of a column of losses beside the column `rate`."""
    by_seed = table.sort_values("rate").groupby("seed")
    return pd.Series(
        {seed: harmless_rate(list(of["rate"]), list(of[loss]), slack) for seed, of in by_seed}
    )


def least_rise(hinge: pd.DataFrame, least_rate: float) -> pd.Series:
    r"""The least $(\mathrm{loss}(R) - \mathrm{loss}(0)) / R$ over shares R from a rate on, by seed.

    `hinge` has a row per seed and a column per share R of removed units, 0 among them. A loss of
    order R, the second half of corollary 1 of Li et al. (2024), has it above a constant; where
    nothing matters it is near zero.
    """
    rates = hinge.columns.to_numpy(float)
    judged = rates >= max(least_rate - 1e-6, rates[rates > 0].min())
    rises = hinge.sub(hinge[0.0], axis=0).loc[:, judged] / rates[judged]
    return rises.min(axis=1)


def needed(numbers: Sequence[float], losses: Sequence[float], threshold: float) -> float:
    """From which number of samples on the loss stays at or below a threshold.

    Numbers rise; between two of them logarithms of both are interpolated. NaN where the last number
    does not suffice.
    """
    above = np.flatnonzero(np.asarray(losses) > threshold)
    if not len(above):
        return float(numbers[0])
    last = int(above[-1])
    if last + 1 == len(numbers):
        return float("nan")
    # A loss of zero has no logarithm: a hundredth of the threshold is as good as none.
    before = math.log(losses[last] / threshold)
    after = math.log(max(losses[last + 1], threshold / 100) / threshold)
    share = before / (before - after)
    return float(numbers[last] ** (1 - share) * numbers[last + 1] ** share)


def by_value(table: pd.DataFrame, column: str, value: str = "value") -> ByValue:
    """A column of each seed, for each value of another one, under names such as `0.01`."""
    return {
        f"{number:g}": of.set_index("seed")[column].astype(float).sort_index()
        for number, of in table.groupby(value)
    }


def numbers_needed(scored: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """How many training samples bring the test hinge loss down to a threshold, `n_needed`.

    One row per sweep, number of label-relevant tokens and seed; `scored` has one per training.
    """
    rows = scored.sort_values("n_train")
    by = rows.groupby(["sweep", "n_relevant", "seq_len", "seed"])[["n_train", "hinge"]]
    found = by.apply(lambda of: needed(list(of["n_train"]), list(of["hinge"]), threshold))
    return found.rename("n_needed").reset_index()
