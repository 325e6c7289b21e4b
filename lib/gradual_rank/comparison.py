"""What claims say of optimisers: a value a seed, from the tables of their trainings."""

import math

import pandas as pd

from lib.files.tables import pick
from lib.gradual_rank.measures import Table, apart, by_scale
from lib.gradual_rank.scales import LOG10
from lib.pages.measures import Row, Values, rows_of

BY_SCALE = ("order", "separate", "slope_least", "slope_most")


def first_rates(courses: Table) -> pd.Series:
    """The learning rate of the first steps, by optimiser: the summed rates over the steps."""
    moved = courses[courses["step"] > 0].sort_values("step")
    first = moved.groupby("optimizer", sort=False).first()
    return first["time"] / first["step"]


def training_measures(runs: Table, rates: pd.Series) -> list[Row]:
    """Delay, order, separation and speeds by optimiser and teacher.

    A case is an optimiser, which learns a teacher of full rank, or of a low one where it says so.
    `rates` are the learning rates by optimiser, for a delay in steps.
    """
    found: list[Row] = []
    full = runs["teacher_rank"].max()
    for (optimizer, rank), own in runs.groupby(["optimizer", "teacher_rank"], sort=False):
        case = str(optimizer) if rank == full else f"{optimizer} low"
        late = delays(own, float(rates[str(optimizer)]))
        found += rows_of({name: by_scale(own, name) for name in BY_SCALE} | late, case)
    return found


def delays(runs: Table, rate: float) -> dict[str, Values]:
    r"""How the time of the first rise follows log(1/α) between the two smallest scales, by seed.

    `delay` is the change of the time per log(1/α), times $\log(1 + \eta \sigma_1) / \eta$, the
    growth that gradient descent has at zero: gradient descent has 1. `delay_change` is the change
    as a share of the time from the larger scale, `delay_steps` the change in steps of the learning
    rate, and `rise_steps` that time in steps. All are left out where there is one scale alone.
    """
    if runs["log10_init_scale"].nunique() < 2:
        return {}
    small, large = sorted(runs["log10_init_scale"].unique())[:2]
    late = pick(runs, log10_init_scale=small)
    early = pick(runs, log10_init_scale=large)
    change = late["first_rise"] - early["first_rise"]
    return {
        "delay": change / ((large - small) * LOG10) * late["growth"],
        "delay_change": change.abs() / early["first_rise"],
        "delay_steps": change.abs() / rate,
        "rise_steps": early["first_rise"] / rate,
    }


def few_measures(few: Table) -> list[Row]:
    """Effective ranks on few tokens; under noise the best test loss over gradient descent's.

    A case is an optimiser, on as many samples as it says where there is no noise.
    """
    found: list[Row] = []
    for (optimizer, n, noise), own in few.groupby(["optimizer", "n_samples", "noise"], sort=False):
        rows = own.set_index("seed")
        if noise == 0:
            ranks = {"effective_rank_KQ": rows["effective_rank_KQ"]}
            found += rows_of(ranks, f"{optimizer} on {n}")
        else:
            base = pick(few, optimizer="gd", noise=noise)["best_test_loss"]
            losses = {"best_over_gd": rows["best_test_loss"] / base}
            found += rows_of(losses, str(optimizer))
    return found


def diagonal_measures(diagonal: Table) -> list[Row]:
    """The order of the products of the diagonal head under Adam, and in gradient flow."""
    adam = pick(diagonal, optimizer="adam")["order"]
    flow = by_scale(diagonal[diagonal["optimizer"] == "gradient flow"], "order")
    return [
        *rows_of({"order_diagonal": adam}, "adam"),
        *rows_of({"order_diagonal": flow}, "gradient flow"),
    ]


def flow_distances(paths: Table, events: Table) -> Table:
    """The largest difference of a product from sign flow's at a look; whether one has passed 0."""
    passes = events[events["kind"] == "passes"].groupby("seed")["time"].min()
    base = paths[paths["method"] == "flow"].set_index(["seed", "time"])["p"]
    rows = paths[paths["method"] != "flow"].copy()
    flow = base.loc[list(zip(rows["seed"], rows["time"], strict=True))]
    rows["distance"] = apart(rows["p"], flow)
    rows["passed"] = rows["time"] >= rows["seed"].map(passes).fillna(math.inf)
    return rows.drop(columns="p").reset_index(drop=True)
