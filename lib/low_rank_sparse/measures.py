"""What claims say of trainings, cuts and sweeps: a value per seed, also by what varies."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.files.tables import pick
from lib.low_rank_sparse.energy import gap, leading_energy, nuclear_tail, of_matrices
from lib.matrices.ranks import summaries
from lib.pages.measures import Row, Values, rows_of

BySeed = pd.Series
ByValue = dict[str, pd.Series]
Measures = dict[str, Values]
Tables = Mapping[str, pd.DataFrame]

MATRICES = ("W_Q", "W_K", "W_V", "W_O")
PAIRS = {"W_Q and W_K": ["Q", "K"], "W_V and W_O": ["V", "O"]}  # with the columns of energy.py
OF_NEURONS = ("n_neurons", "init_scale")  # what may vary so that neurons part otherwise
# The theorem wants fewer confusion tokens than this share of the label-relevant ones: 1 / (2 e).
CONFUSION_ALLOWED = 1 / (2 * math.e)


def rows_of_configuration(
    name: str,
    permuted: str,
    tables: Tables,
    *,
    steps: Sequence[int],
    pruning_rate: float,
    corollary_from: float,
) -> list[Row]:
    """The rows of a configuration's measures, by its rows of the tables and those of its null.

    The null is the configuration of that name, with permuted labels. A case is the configuration's
    name, with that of a matrix where there is a value for each.
    """
    own = {key: of[of["configuration"] == name] for key, of in tables.items()}
    null = {key: of[of["configuration"] == permuted] for key, of in tables.items()}
    alone = {
        **training_measures(own["training"]),
        **truncation_measures(own["truncate"]),
        **direction_measures(own["directions"]),
        **neuron_measures(own["neurons"]),
        **pruning_measures(own["prune"], pruning_rate=pruning_rate, corollary_from=corollary_from),
        **adapter_measures(own["adapt"]),
    }
    return [
        *rows_of(alone, name),
        *update_rows(name, own["spectra"], steps),
        *null_rows(name, null["spectra"], null["directions"], null["neurons"], steps),
    ]


def n_trained(training: pd.DataFrame, name: str) -> int:
    """How many seeds of a configuration were trained."""
    return training.loc[training["configuration"] == name, "seed"].nunique()


def values_rate(prune: pd.DataFrame) -> float:
    """The share of the rows of W_V that were pruned."""
    return prune["rate"][prune["what"] == "rows of W_V"].max()


def training_measures(training: pd.DataFrame) -> Measures:
    """The test loss that the training reached."""
    last = pick(training, step=training["step"].max())
    return {"hinge": last["hinge"]}


def with_ranks(spectra: pd.DataFrame, rtol: float) -> pd.DataFrame:
    """The spectra of the four matrices' updates, and of Gaussian ones, with the numerical rank."""
    rows = spectra[spectra["matrix"].isin(MATRICES) & spectra["of"].isin(["update", "gaussian"])]
    ranks = summaries(list(rows["singular_values"]), rtol)["numerical_rank"]
    return rows.assign(numerical_rank=ranks)


def update_rows(name: str, spectra: pd.DataFrame, steps: Sequence[int]) -> list[Row]:
    """How low the rank of the updates is, and of Gaussian ones.

    Matrices that are judged together are judged by the worse.
    """
    update = spectra[spectra["of"] == "update"]
    gaussian = spectra[spectra["of"] == "gaussian"]
    end = update[update["step"] == update["step"].max()]
    energy = of_matrices(end, leading_energy)
    tail = of_matrices(end, nuclear_tail)
    ranks = end.pivot_table(index="seed", columns="matrix", values="numerical_rank")
    by_step = energies_by_step(update, steps)
    alone: Measures = {
        "gaussian_energy": of_matrices(gaussian, leading_energy).max(axis=1),
        "gap": of_matrices(end, gap)[PAIRS["W_Q and W_K"]].max(axis=1),
        "energy_by_step": {step: of.min(axis=1) for step, of in by_step.items()},
    }
    return [
        *rows_of(alone, name),
        *rows_by_matrix(name, "energy", {f"W_{letter}": energy[letter] for letter in energy}),
        *rows_by_matrix(name, "numerical_rank", {matrix: ranks[matrix] for matrix in MATRICES}),
        *rows_by_matrix(
            name, "nuclear_tail", {pair: tail[of].max(axis=1) for pair, of in PAIRS.items()}
        ),
    ]


def null_rows(
    name: str,
    spectra: pd.DataFrame,
    directions: pd.DataFrame,
    neurons: pd.DataFrame,
    steps: Sequence[int],
) -> list[Row]:
    """How near to low rank trainings on permuted labels come; nothing where there are none.

    Matrices that are judged together are judged by the one nearest to low rank.
    """
    if spectra.empty:
        return []
    update = spectra[spectra["of"] == "update"]
    end = update[update["step"] == update["step"].max()]
    energy = of_matrices(end, leading_energy)
    tail = of_matrices(end, nuclear_tail)
    by_step = energies_by_step(update, steps)
    alone: Measures = {
        "permuted_gap": of_matrices(end, gap)[PAIRS["W_Q and W_K"]].min(axis=1),
        "permuted_energy_by_step": {step: of.max(axis=1) for step, of in by_step.items()},
        "permuted_alignment_K": direction_measures(directions)["alignment_K"],
        "permuted_bimodality": pick(neurons)["bimodality"],
    }
    energies = {f"W_{letter}": energy[letter] for letter in energy}
    tails = {pair: tail[of].min(axis=1) for pair, of in PAIRS.items()}
    return [
        *rows_of(alone, name),
        *rows_by_matrix(name, "permuted_energy", energies),
        *rows_by_matrix(name, "permuted_nuclear_tail", tails),
    ]


def rows_by_matrix(name: str, measure: str, by_matrix: Mapping[str, BySeed]) -> list[Row]:
    """The rows of a measure that each matrix, or each pair of matrices, has for itself."""
    return [
        row
        for matrix, values in by_matrix.items()
        for row in rows_of({measure: values}, f"{name} {matrix}")
    ]


def energies_by_step(update: pd.DataFrame, steps: Sequence[int]) -> dict[str, pd.DataFrame]:
    """The energies of W_Q and W_K, a row per seed, at each of the steps that was saved."""
    return {
        str(step): of_matrices(of, leading_energy)[["Q", "K"]]
        for step, of in update.groupby("step")
        if step in steps
    }


def truncation_measures(table: pd.DataFrame) -> Measures:
    """What cuts of the updates cost: the losses of cut models, and how some cuts change the scores.

    The table has one row per seed, `kind` of cut and `rank`, with the scores of the model; all
    updates at the largest rank are whole.
    """
    whole = pick(table, kind="all", rank=table[table["kind"] == "all"]["rank"].max())
    two = pick(table, kind="all", rank=2)
    chance = pick(table, kind="random directions")
    return {
        "rank_2_cost": two["hinge"] - whole["hinge"],
        "rank_2_attention_lost": whole["attention"] - two["attention"],
        "random_directions_attention_lost": whole["attention"] - chance["attention"],
        "rank_1_hinge": pick(table, kind="all", rank=1)["hinge"],
        "random_directions_hinge": chance["hinge"],
        "gaussian_hinge": pick(table, kind="gaussian")["hinge"],
        "without_attention_hinge": pick(table, kind="W_Q and W_K", rank=0)["hinge"],
        "rank_1_attention_hinge": pick(table, kind="W_Q and W_K", rank=1)["hinge"],
    }


def direction_measures(table: pd.DataFrame) -> dict[str, BySeed]:
    """Where the two leading directions of the update of W_K lie: one row per seed and `span`."""
    return {
        "alignment_K": pick(table, span="with mean irrelevant")["alignment"],
        "alignment_without_mean": pick(table, span="discriminative")["alignment"],
    }


def neuron_measures(table: pd.DataFrame) -> Measures:
    """How the neurons part: one row per seed, with `norm_groups` and the `initial_norm`."""
    rows = pick(table)
    return {
        "bimodality": rows["bimodality"],
        "small_over_initial": rows["small_norm"] / rows["initial_norm"],
    }


def pruning_measures(
    table: pd.DataFrame, *, pruning_rate: float, corollary_from: float
) -> Measures:
    """What can be removed, and the two halves of corollary 1.

    The first half removes all small neurons, the second a share of the large ones. The rate of the
    table that is nearest to the pruning rate counts.
    """
    neurons = table[table["what"] == "neurons"]
    hinge = by_rate(table, "large neurons")
    rate = nearest(list(neurons["rate"]), pruning_rate)
    smallest = neurons[neurons["order"] == "smallest"]
    as_many = pick(table, what="as many as small", order="random")
    return {
        "pruned_smallest": pick(smallest, rate=rate)["hinge"],
        "pruned_random": pick(neurons, order="random", rate=rate)["hinge"],
        "as_many_random": as_many["hinge"],
        "values": pick(table, what="rows of W_V")["hinge"],
        "without_small_cost": hinge[0.0] - pick(smallest, rate=0)["hinge"],
        "large_least_rise": least_rise(hinge, corollary_from),
        "small_least_rise": least_rise(by_rate(table, "small neurons"), corollary_from),
    }


def by_rate(table: pd.DataFrame, what: str) -> pd.DataFrame:
    """The hinge loss without a share of such neurons: a row per seed, a column per share."""
    rows = table[table["what"] == what]
    return rows.pivot_table(index="seed", columns="rate", values="hinge")


def adapter_measures(table: pd.DataFrame) -> Measures:
    """The loss with adapters, by rank; nothing where there are none."""
    return {"adapter_hinge": by_value(table, "hinge", "rank")} if len(table) else {}


def as_swept(sweep: pd.DataFrame, fit_from_n_patterns: int) -> pd.DataFrame:
    """The trainings of sweeps, with the number of the first batch that is fitted, from 1 on, and
    whether they count for a power law.

    That number is NaN where no batch is. What counts has few confusion tokens, as the theorem wants
    it, and where the number of patterns varies at least so many of them.
    """
    allowed = meets_condition(sweep["n_confusion"], sweep["n_relevant"])
    enough = (sweep["sweep"] != "patterns") | (sweep["value"] >= fit_from_n_patterns)
    n_batches = sweep["fitted_step"].where(sweep["fitted_step"] >= 0) + 1
    return sweep.assign(n_batches=n_batches, in_fit=allowed & enough)


def sweep_rows(
    sweep: pd.DataFrame,
    samples: pd.DataFrame,
    *,
    n_patterns: int,
    decades_from: Sequence[float],
) -> list[Row]:
    """What every sweep shows, the exponents of each seed's power laws, and a control.

    A case is the name of a sweep.
    """
    rows: list[Row] = []
    for name, of in sweep.groupby("sweep"):
        rows += rows_of(one_sweep(of), str(name))
    rows += step_exponents(sweep, decades_from)
    for name, of in samples.groupby("sweep"):
        rows += rows_of({"slope_of_samples": exponents(of, "n_relevant", "n_needed")}, str(name))
    patterns = sweep[sweep["in_fit"] & (sweep["sweep"] == "patterns")]
    clean = pick(sweep, sweep="noise", value=0)
    beyond = [sigma[n_patterns - 1] / sigma[0] for sigma in clean["W_K_singular_values"]]
    alone = {
        "slope_of_third": exponents(patterns, "value", "W_K_next"),
        "beyond_patterns_without_noise": pd.Series(beyond, clean.index, dtype=float),
    }
    return rows + rows_of(alone)


def step_exponents(sweep: pd.DataFrame, decades_from: Sequence[float]) -> list[Row]:
    """The exponents of the number of batches to a fit, in α* and in η, and their nulls.

    With confusion tokens the shares that meet the theorem's condition are fitted, and those outside
    it by themselves. In the step size every decade is fitted, and named by its least value. The
    null gives each value of a seed the number of batches of another one.
    """
    of = {
        name: sweep[sweep["sweep"] == name]
        for name in ("relevant", "relevant_with_confusion", "step_size")
    }
    inside = {name: rows[rows["in_fit"]] for name, rows in of.items()}
    shuffled = {name: shuffled_batches(rows, name) for name, rows in inside.items()}
    confused = of["relevant_with_confusion"]
    outside = exponents(confused[~confused["in_fit"]], "value", "n_batches")
    found = rows_of({"slope_of_steps_outside_the_condition": outside})
    for measure, fitted in (("slope_of_steps", inside), ("shuffled_slope_of_steps", shuffled)):
        for name in ("relevant", "relevant_with_confusion"):
            found += rows_of({measure: exponents(fitted[name], "value", "n_batches")}, name)
        by_decade = {
            f"{least:g}": exponents(decade(fitted["step_size"], least), "value", "n_batches")
            for least in decades_from
        }
        found += rows_of({measure: by_decade}, "step_size")
    return found


def decade(rows: pd.DataFrame, least: float) -> pd.DataFrame:
    """The rows whose `value` lies between the least and ten times as much."""
    ratio = rows["value"] / least
    return rows[(ratio > 1 - 1e-6) & (ratio < 10 + 1e-6)]


def shuffled_batches(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """The same rows, where each value of a seed has the number of batches of another, by chance."""
    found = []
    for seed in rows["seed"].unique().tolist():
        of = rows[rows["seed"] == seed].sort_values("value")
        order = elsewhere(len(of), np.random.default_rng([seed, *name.encode()]))
        found.append(of.assign(n_batches=of["n_batches"].to_numpy()[order]))
    return pd.concat(found) if found else rows


def elsewhere(n: int, draw: np.random.Generator) -> np.ndarray:
    """A random order of n places in which none stays where it is; one place alone stays."""
    places = np.arange(n)
    order = draw.permutation(n)
    while n > 1 and (order == places).any():
        order = draw.permutation(n)
    return order


def meets_condition(n_confusion: pd.Series, n_relevant: pd.Series) -> pd.Series:
    r"""Whether $\alpha_\# / \alpha_* < 1 / (2e)$, the theorem's condition on confusion tokens."""
    return n_confusion < CONFUSION_ALLOWED * n_relevant


def one_sweep(rows: pd.DataFrame) -> dict[str, ByValue]:
    """What one sweep shows, by the value that varies; a sweep of permuted labels is a null.

    The sweep shows the energy in the leading k directions, k the number of label-relevant patterns,
    and the gap behind them. Where k varies, with the labels, it also shows the losses at ranks k
    and k - 1, and what rank 2 costs; where the neurons or their start vary, how they part. Matrices
    that are judged together are judged by the worse, and in a null by the nearest to low rank.
    """
    gaps = rows[["W_Q_gap", "W_K_gap"]]
    if rows["permuted"].all():
        return {"swept_gap": by_value(rows.assign(of=gaps.min(axis=1)), "of")}
    of_labels = (rows["varies"] == "labels").all()
    columns = {"swept_rank_2_cost": rows["hinge_at_rank_2"] - rows["hinge"]} if of_labels else {}
    columns["swept_energy"] = rows[["W_Q_energy", "W_K_energy"]].min(axis=1)
    columns["swept_gap"] = gaps.max(axis=1)
    if of_labels:
        columns["swept_energy_2_of_values"] = rows[["W_V_energy_2", "W_O_energy_2"]].min(axis=1)
        columns |= {name: rows[name] for name in ("hinge_at_rank_below", "hinge_at_rank_k")}
    elif rows["varies"].isin(OF_NEURONS).all():
        columns |= {name: rows[name] for name in ("small_share", "large_over_small")}
    return {name: by_value(rows.assign(of=column), "of") for name, column in columns.items()}


def nearest(values: Sequence[float], wanted: float) -> float:
    """The value that is nearest to the wanted one, and the lower of two that are as near."""
    return min(sorted(values), key=lambda value: abs(value - wanted))


def log_log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    r"""The exponent b of $y \approx c x^b$: the least-squares slope of log y on log x."""
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
    """The number of samples from which on the loss stays at or below a threshold.

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
