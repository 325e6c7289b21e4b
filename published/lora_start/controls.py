"""What stands beside an adapter's forecast: its σ permuted, and the same matrices trained whole."""

from typing import Any

import numpy as np
import pandas as pd

from lib.gradual_rank.activation_times import order_agreement
from lib.gradual_rank.adapter_start import pace
from lib.gradual_rank.adapter_steps import descent_steps
from lib.pages.measures import Row, rows_of
from published.lora_start.run import SMALL, by_adapter, plain
from published.lora_start.trainings import SCALING
from published.lora_start.updates import WHOLE

N_PERMUTED = 100  # permutations of σ among all directions of an adapter
BY_DESCENT = ("descent", "plus", "both", "narrow")


def control_measures(learned: pd.DataFrame) -> list[Row]:
    """The rows of the measures of both, from the table of what was learned when."""
    rows = plain(learned[learned["size"] == SMALL])
    found = []
    for case in BY_DESCENT:
        found += rows_of(permuted(rows[rows["case"] == case]), case)
    for case in ("descent", "adam"):
        found += rows_of(beside_whole(rows, case), case)
    return found


def permuted(rows: pd.DataFrame) -> Any:
    """Tau of the order, in the mean, and the largest error of a time, in the median, of forecasts
    with permutations of σ among all directions of an adapter.

    Errors are of the directions whose own forecast comes before the loss has fallen.
    """

    def measure(own: pd.DataFrame) -> list[float]:
        kappa = pace(SCALING, float(own["ratio"].iloc[0]))
        source = np.random.default_rng(0)
        sigma = source.permuted(np.tile(own["sigma"].to_numpy(float), (N_PERMUTED, 1)), axis=1)
        ends = (own[name].to_numpy(float) for name in ("plus", "minus"))
        plus, minus = (np.broadcast_to(one, sigma.shape) for one in ends)
        x = float(own["rate"].iloc[0]) * kappa * sigma
        said = descent_steps(SMALL, x, kappa, plus, minus)
        times = own["measured"].to_numpy(float)
        near = (own["forecast"] <= own["horizon"]).to_numpy()
        errors = np.abs(times / said - 1)[:, near].max(1, initial=0.0)
        tau = np.mean([order_agreement(times, one) for one in said])
        return [float(tau), float(np.median(errors)) if near.any() else np.nan]

    return by_adapter(rows, ("order_permuted", "time_error_permuted"), measure)


def beside_whole(rows: pd.DataFrame, case: str) -> Any:
    """Tau of the order in which an adapter learns directions with that of matrices trained whole.

    `order_whole` is by scale of A and seed.
    """
    key = ["seed", "module", "direction"]
    others = rows.loc[rows["case"] == WHOLE, [*key, "measured"]]
    both = rows[rows["case"] == case].merge(others, on=key, suffixes=("", "_whole"))

    def measure(own: pd.DataFrame) -> list[float]:
        times, of_whole = (own[name].to_numpy(float) for name in ("measured", "measured_whole"))
        return [order_agreement(times, of_whole)]

    return by_adapter(both, ("order_whole",), measure)
