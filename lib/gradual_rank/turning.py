"""What claims say of heads with normalised queries and keys, from the tables of what was followed.

Times are of the flow. Measures are by the line of the table of cases, with a value a seed.
"""

import numpy as np
import pandas as pd

from lib.files.tables import pick
from lib.gradual_rank.measures import Table, by_scale
from lib.gradual_rank.scales import LOG10
from lib.pages.measures import Row, rows_of

KEYS_ALONE = "permuted"  # the line whose values are not followed until they have risen
FROM = -2.0  # log10 of the scale from which on the time of the turn is compared
BY_SCALE = {  # measures at each scale, and their columns
    "angle": "angle",
    "norm_drift": "drift",
    "turn_rank": "stable_rank",
    "start_rank": "rank_at_start",
    "rise_rank": "rank_at_rise",
}


def measures_of(heads: Table, limits: Table) -> list[Row]:
    """The measures of every line, in the order of the table of cases."""
    found: list[Row] = []
    for name, own in heads.groupby("case", sort=False):
        limit = pick(limits, case=name).drop(columns="case")
        by_seed = own.merge(limit, on="seed", suffixes=("", "_limit"))
        measured = {"turn_change": change_of_turn(own)}
        if name != KEYS_ALONE:
            measured["wait_ratio"] = waits(by_seed, "growth")
            measured["wait_ratio_start"] = waits(by_seed, "start_growth")
        case = str(name)
        found += rows_of(measured, case)
        found += rows_of({name: by_scale(own, column) for name, column in BY_SCALE.items()}, case)
        if np.isfinite(limit["turn"]).all():
            found += rows_of(limit_errors(by_seed), case)
    return found


def change_of_turn(heads: Table) -> pd.Series:
    """How much the time of the turn moves from 1e-2 to the smallest scale, over that from 1e-2."""
    turns = heads.pivot(index="seed", columns="log10_init_scale", values="turn")
    scales = [float(scale) for scale in turns.columns]
    near = min(scales, key=lambda scale: abs(scale - FROM))
    return (turns[min(scales)] / turns[near] - 1).abs()


def waits(heads: Table, column: str) -> pd.Series:
    r"""The delay of W_VO's rise from the second smallest scale to the smallest, over that which
    a rate σ of growth predicts: $\log(\alpha_1 / \alpha_2) / \sigma$, as $W_{VO} \propto \alpha^2
    e^{2 \sigma t}$.
    """
    rises = heads.pivot(index="seed", columns="log10_init_scale", values="rise")
    least, second = sorted(float(scale) for scale in rises.columns)[:2]
    rate = heads.groupby("seed")[column].first()
    return (rises[least] - rises[second]) * rate / ((second - least) * LOG10)


def limit_errors(heads: Table) -> dict[str, dict[str, pd.Series]]:
    """How far the time of the turn is from that in the limit, over the latter; and from that of the
    next seed's head.
    """
    limits = heads.groupby("seed")["turn_limit"].first()
    others = pd.Series(np.roll(limits.to_numpy(), -1), limits.index)
    beside = heads.assign(
        own=(heads["turn"] / heads["turn_limit"] - 1).abs(),
        other=(heads["turn"] / heads["seed"].map(others) - 1).abs(),
    )
    return {
        "turn_limit_error": by_scale(beside, "own"),
        "turn_limit_error_other": by_scale(beside, "other"),
    }
