"""What is measured of a one-layer Transformer that was cut: a value for each seed, from the tables of its cuts."""

from collections.abc import Mapping
from typing import Any

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
    """What cuts of the updates cost: the losses there, and what rank 2 and two random directions change of the scores.

    One row per seed, `kind` of cut and `rank`, with the scores of the model; all updates at the largest rank are whole.
    """
    whole = table[table["kind"] == "all"]["rank"].max()
    dense = _by_seed(table, kind="all", rank=whole)[SCORES]
    cost = _by_seed(table, kind="all", rank=2)[SCORES] - dense
    lost = dense - _by_seed(table, kind="random directions")[SCORES]
    measures: Measures = {f"rank_2_{name if name != 'hinge' else 'cost'}": cost[name] for name in SCORES}
    measures |= {f"random_directions_{name}_lost": lost[name] for name in SCORES[1:]}
    return measures | {f"{name}_hinge": _by_seed(table, **where)["hinge"] for name, where in HINGES.items()}


def direction_measures(table: pd.DataFrame) -> Measures:
    """Where the two leading directions of the updates lie: of W_K on its tokens' side, of the others on each side.

    One row per seed, saved step, `matrix`, `side` and `span`, with the `alignment`; the last step counts. Of the others
    it is the least; the tokens' side of W_Q is left out.
    """
    last = table[table["step"] == table["step"].max()]
    of_all = last[last["span"] == "with mean irrelevant"]
    others = of_all[(of_all["matrix"] != "W_K") & ~((of_all["matrix"] == "W_Q") & (of_all["side"] == "input"))]
    alone = _by_seed(last, matrix="W_K", side="input", span="discriminative")
    return {
        "alignment_K": _by_seed(of_all, matrix="W_K", side="input")["alignment"],
        "alignment_QVO": others.groupby("seed")["alignment"].min(),
        "alignment_without_mean": alone["alignment"],
    }


def neuron_measures(table: pd.DataFrame) -> Measures:
    """How the neurons part: one row per seed, with what `norm_groups` says of their norms, and the `initial_norm`."""
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
