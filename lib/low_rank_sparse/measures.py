"""What claims say of a one-layer Transformer: of its cuts, and of a sweep what its curve is summed
up to.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

Measures = dict[str, pd.Series]

SCORES = ["hinge", "attention", "attention_of_relevant"]
HINGES: Mapping[str, Mapping[str, Any]] = {
    "rank_0": {"kind": "all", "rank": 0},
    "rank_1": {"kind": "all", "rank": 1},
    "pairs_3_and_4": {"kind": "pairs 3 and 4"},
    "random_directions": {"kind": "random directions"},
    "gaussian": {"kind": "gaussian"},
    "without_attention": {"kind": "W_Q and W_K", "rank": 0},
    "rank_1_attention": {"kind": "W_Q and W_K", "rank": 1},
}


def truncation_measures(table: pd.DataFrame) -> Measures:
    """What cuts of the updates cost: the losses there, and what rank 2 and two random directions
    change of the scores.

    One row per seed, `kind` of cut and `rank`, with the scores of the model; all updates at the
    largest rank are whole.
    """
    whole = table[table["kind"] == "all"]["rank"].max()
    dense = _by_seed(table, kind="all", rank=whole)[SCORES]
    cost = _by_seed(table, kind="all", rank=2)[SCORES] - dense
    lost = dense - _by_seed(table, kind="random directions")[SCORES]
    measures: Measures = {
        f"rank_2_{name if name != 'hinge' else 'cost'}": cost[name] for name in SCORES
    }
    measures |= {f"random_directions_{name}_lost": lost[name] for name in SCORES[1:]}
    return measures | {
        f"{name}_hinge": _by_seed(table, **where)["hinge"] for name, where in HINGES.items()
    }


def direction_measures(table: pd.DataFrame) -> Measures:
    """Where the two leading directions of the updates lie: of W_K on its tokens' side, of the
    others on each side.

    One row per seed, saved step, `matrix`, `side` and `span`, with the `alignment`; the last step
    counts. Of the others it is the least; the tokens' side of W_Q is left out.
    """
    last = table[table["step"] == table["step"].max()]
    of_all = last[last["span"] == "with mean irrelevant"]
    others = of_all[
        (of_all["matrix"] != "W_K") & ~((of_all["matrix"] == "W_Q") & (of_all["side"] == "input"))
    ]
    alone = _by_seed(last, matrix="W_K", side="input", span="discriminative")
    return {
        "alignment_K": _by_seed(of_all, matrix="W_K", side="input")["alignment"],
        "alignment_QVO": others.groupby("seed")["alignment"].min(),
        "alignment_without_mean": alone["alignment"],
    }


def neuron_measures(table: pd.DataFrame) -> Measures:
    """How the neurons part: one row per seed, with what `norm_groups` says of their norms, and the
    `initial_norm`.
    """
    rows = _by_seed(table)
    return {
        "small_share": rows["small_share"],
        "bimodality": rows["bimodality"],
        "large_over_small": rows["large_norm"] / rows["small_norm"],
        "small_over_initial": rows["small_norm"] / rows["initial_norm"],
    }


def _by_seed(table: pd.DataFrame, **where: object) -> pd.DataFrame:
    """The rows whose columns have these values, by seed."""
    for name, value in where.items():
        table = table[table[name] == value]
    return table.set_index("seed").sort_index()


def nearest(values: Sequence[float], wanted: float) -> float:
    """Of some values that nearest to the wanted one; of two as near, the lower."""
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
    """The exponent of each seed's power law of column y in column x; NaN where a seed has one
    point, or some y <= 0.
    """
    fitted = {
        seed: log_log_slope(of[x].tolist(), of[y].tolist())
        if len(of) > 1 and (of[y] > 0).all()
        else np.nan
        for seed, of in table.groupby("seed")
    }
    return pd.Series(fitted, dtype=float)


def harmless_rate(rates: Sequence[float], losses: Sequence[float], slack: float) -> float:
    """The largest rate up to which every rate's loss is at most the first one's plus a slack; rates
    rise.
    """
    harmful = np.flatnonzero(np.asarray(losses) > losses[0] + slack)
    return rates[(harmful[0] if len(harmful) else len(rates)) - 1]


def harmless_rates(table: pd.DataFrame, loss: str, slack: float) -> pd.Series:
    """The harmless rate of each seed, of a column of losses beside the column `rate`."""
    by_seed = table.sort_values("rate").groupby("seed")
    return pd.Series(
        {seed: harmless_rate(list(of["rate"]), list(of[loss]), slack) for seed, of in by_seed}
    )


def least_rise(hinge: pd.DataFrame, least_rate: float) -> pd.Series:
    r"""The least of $(\mathrm{loss}(R) - \mathrm{loss}(0)) / R$ over the shares R from the least
    rate on, by seed.

    `hinge` has a row per seed and a column per share R of removed units, 0 among them. A loss of
    order R, the second half of corollary 1 of Li et al. (2024), has it above a constant; where
    nothing matters it is near zero.
    """
    rates = hinge.columns.to_numpy(float)
    judged = rates >= max(least_rate - 1e-6, rates[rates > 0].min())
    rises = hinge.sub(hinge[0.0], axis=0).loc[:, judged] / rates[judged]
    return rises.min(axis=1)


def needed(numbers: Sequence[float], losses: Sequence[float], threshold: float) -> float:
    """From which number of samples on the loss stays at or below a threshold, between two numbers
    by logarithms of both; the least number where it is so from there on, NaN where the last number
    does not suffice. Numbers rise.
    """
    above = np.flatnonzero(np.asarray(losses) > threshold)
    if not len(above):
        return float(numbers[0])
    last = int(above[-1])
    if last + 1 == len(numbers):
        return float("nan")
    # A loss of zero has no logarithm: a hundredth of the threshold is as good as none.
    before, after = (
        math.log(max(losses[i], threshold / 100) / threshold) for i in (last, last + 1)
    )
    share = before / (before - after)
    return float(numbers[last] ** (1 - share) * numbers[last + 1] ** share)


def by_value(table: pd.DataFrame, column: str, value: str = "value") -> dict[str, pd.Series]:
    """A column of each seed, for each value of another one, under names such as `0.01`, values
    rising.
    """
    return {
        f"{number:g}": of.set_index("seed")[column].astype(float).sort_index()
        for number, of in table.groupby(value)
    }


def numbers_needed(scored: pd.DataFrame, threshold: float) -> pd.DataFrame:
    """How many training samples bring the test hinge loss down to a threshold, `n_needed`: by
    sweep, number of label-relevant tokens and seed. The table has one row per training, with its
    number of samples, `n_train`.
    """
    rows = scored.sort_values("n_train")
    by = rows.groupby(["sweep", "n_relevant", "seq_len", "seed"])[["n_train", "hinge"]]
    found = by.apply(lambda of: needed(list(of["n_train"]), list(of["hinge"]), threshold))
    return found.rename("n_needed").reset_index()


def of_sweep(
    rows: pd.DataFrame, pairs: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, pd.Series]]:
    """What a sweep shows, by the value that varies, one value per seed: the loss, and what rank 2
    adds to it.

    Of the matrices that are judged together, by the worse of them: the energy in the leading k
    directions, k the number of label-relevant patterns, and the gap behind them. Where k varies,
    also the losses at rank k and k - 1 and the energy and gap at 2; else how the neurons part.
    """
    varies = (rows["varies"] == "labels").all()
    columns = {"hinge": rows["hinge"], "rank_2_cost": rows["hinge_at_rank_2"] - rows["hinge"]}
    for name, letters in pairs.items():
        columns[f"energy_{name}"] = rows[[f"W_{letter}_energy" for letter in letters]].min(axis=1)
        columns[f"gap_{name}"] = rows[[f"W_{letter}_gap" for letter in letters]].max(axis=1)
        if varies:
            columns[f"energy_2_{name}"] = rows[[f"W_{letter}_energy_2" for letter in letters]].min(
                axis=1
            )
            columns[f"gap_2_{name}"] = rows[[f"W_{letter}_gap_2" for letter in letters]].min(axis=1)
    own = (
        ("hinge_at_rank_below", "hinge_at_rank_k")
        if varies
        else ("small_share", "large_over_small")
    )
    columns |= {name: rows[name] for name in own}
    return {key: by_value(rows.assign(of=column), "of") for key, column in columns.items()}


def of_null(
    rows: pd.DataFrame, groups: Mapping[str, Sequence[str]], of: str = ""
) -> dict[str, dict[str, pd.Series]]:
    """How near to low rank the updates of a null come, by the value that varies, one value per
    seed.

    Of the matrices of a group, by the nearest: the largest energy in the leading k directions and
    in the leading two, and the least gap. `of` begins the columns' names where they are not those
    of the trainings' own updates.
    """
    columns = {}
    for name, letters in groups.items():
        best = {"energy": "max", "energy_2": "max", "gap": "min"}
        for key, summary in best.items():
            column = rows[[f"{of}W_{letter}_{key}" for letter in letters]].agg(summary, axis=1)
            columns["_".join(filter(None, (key, name)))] = by_value(rows.assign(of=column), "of")
    return columns
