"""What claims say of optimisers: a value a seed, from the tables of their trainings."""

import math

import numpy as np
import pandas as pd

from lib.files.tables import pick
from lib.gradual_rank.measures import Table, by_scale
from lib.gradual_rank.orders import kendall

Measures = dict[str, pd.Series | dict[str, pd.Series]]
N_SHUFFLES = 400
BY_SCALE = ("order", "order_KQ", "separate", "plateau", "first_rise", "slope_least", "slope_most")


def training_measures(runs: Table) -> Measures:
    """Delay, order, separation and ranks by optimiser and teacher."""
    found: Measures = {}
    runs = runs.assign(
        stable_rank_ratio=runs["stable_rank_half"] / runs["stable_rank_end"],
        keys_over_values=runs["first_rise_KQ"] / runs["first_rise"],
    )
    full = runs["teacher_rank"].max()
    for (optimizer, rank), own in runs.groupby(["optimizer", "teacher_rank"], sort=False):
        name = f"{optimizer}_%s_{'full' if rank == full else 'low'}"
        for column in (*BY_SCALE, "stable_rank_ratio", "keys_over_values"):
            found[name % column] = by_scale(own, column)
        found |= {name % key: values for key, values in delays(own).items()}
    scale = runs["log10_init_scale"].min()
    chosen = runs[(runs["teacher_rank"] == full) & (runs["log10_init_scale"] == scale)]
    first = pick(chosen, optimizer=chosen["optimizer"].iloc[0])
    return found | {"shuffled_order": shuffled_orders(first["n_directions"])}


def delays(runs: Table) -> dict[str, pd.Series]:
    r"""How the time of the first rise follows log(1/α) between the two smallest scales, by seed.

    `delay` is per log(1/α), times $\log(1 + \eta \sigma_1) / \eta$, the growth that gradient
    descent has at zero: 1 for it. `delay_change` is the change of the time as a share of it.
    Nothing where there is one scale alone.
    """
    if runs["log10_init_scale"].nunique() < 2:
        return {}
    small, large = sorted(runs["log10_init_scale"].unique())[:2]
    late = pick(runs, log10_init_scale=small)
    early = pick(runs, log10_init_scale=large)
    change = late["first_rise"] - early["first_rise"]
    return {
        "delay": change / ((large - small) * math.log(10)) * late["growth"],
        "delay_change": change.abs() / early["first_rise"],
    }


def shuffled_orders(n_directions: pd.Series) -> pd.Series:
    """A null of the order, by seed: the mean of Kendall's tau over random times of directions."""

    def null(seed: int, n: int) -> float:
        draw = np.random.default_rng(seed)
        return float(
            np.mean([kendall(np.arange(n), draw.permutation(n)) for _ in range(N_SHUFFLES)])
        )

    cases = zip(n_directions.index.tolist(), n_directions.tolist(), strict=True)
    return pd.Series({seed: null(seed, n) for seed, n in cases if n > 1}, dtype=float)


def few_measures(few: Table) -> Measures:
    """Effective ranks on few tokens; under noise the best and the last test loss over gd's."""
    found: Measures = {}
    for (optimizer, n, noise), own in few.groupby(["optimizer", "n_samples", "noise"], sort=False):
        rows = own.set_index("seed")
        if noise == 0:
            for key in ("effective_rank_KQ", "effective_rank_VO"):
                found[f"{optimizer}_{key}_{n}"] = rows[key]
        else:
            base = pick(few, optimizer="gd", noise=noise)["best_test_loss"]
            best = rows["best_test_loss"]
            found[f"{optimizer}_best_over_gd"] = best / base
            found[f"{optimizer}_last_over_best"] = rows["last_test_loss"] / best
    return found


def sign_measures(changes: Table, slopes: Table, diagonal: Table, rises: Table) -> Measures:
    """The ray's forecast against sign descent, Adam's early slope, descent's time and order."""
    off = changes.assign(
        error=(changes["measured"] - changes["predicted"]).abs(),
        same=(changes["measured_coordinate"] == changes["predicted_coordinate"]).astype(float),
    )
    betas = slopes["beta_2"]
    long, short = (pick(slopes, beta_2=beta) for beta in (betas.max(), betas.min()))
    gd, adam = (pick(diagonal, optimizer=name) for name in ("gd", "adam"))
    flow = diagonal[diagonal["optimizer"] == "gradient flow"]
    predicted = changes.drop_duplicates("seed").set_index("seed")["predicted"]
    of_gd = rises[rises["optimizer"] == "gd"].sort_values("log10_init_scale")
    waited = of_gd.groupby("seed")["first_rise"].last()
    return {
        "first_change_error": by_scale(off, "error"),
        "first_change_coordinate": by_scale(off, "same"),
        "gd_over_first_change": waited / predicted,
        "adam_slope_VO": long["slope_VO"],
        "adam_slope_KQ": long["slope_KQ"],
        "adam_slope_short_VO": short["slope_VO"],
        "adam_order_diagonal": adam["order"],
        "flow_order_diagonal": by_scale(flow, "order"),
        "flow_order_VO_diagonal": by_scale(flow, "order_VO"),
        "adam_rank_early_diagonal": adam["rank_early"],
        "gd_rank_early_diagonal": gd["rank_early"],
    }


def flow_measures(distances: Table) -> Measures:
    """The largest distances of sign descent from sign flow: roots, and u and v as p passes 0."""
    of_weights = distances["method"] == "weights"
    parts = {
        "sign_flow_roots": distances["method"] == "roots",
        "sign_flow_before": of_weights & ~distances["passed"],
        "sign_flow_after": of_weights & distances["passed"],
    }
    least = distances.loc[of_weights, "log10_init_scale"].min()
    small = distances["log10_init_scale"].isin([-math.inf, least])
    return {
        name: distances[rows & small].groupby("seed")["distance"].max()
        for name, rows in parts.items()
    }


def flow_distances(paths: Table, events: Table) -> Table:
    """The largest difference of a product from sign flow's at a look; whether one has passed 0."""
    passes = events[events["kind"] == "passes"].groupby("seed")["time"].min()
    base = paths[paths["method"] == "flow"].set_index(["seed", "time"])["p"]
    rows = paths[paths["method"] != "flow"].copy()
    flow = base.loc[list(zip(rows["seed"], rows["time"], strict=True))]
    rows["distance"] = [float(np.abs(a - b).max()) for a, b in zip(rows["p"], flow, strict=True)]
    rows["passed"] = rows["time"] >= rows["seed"].map(passes).fillna(math.inf)
    return rows.drop(columns="p").reset_index(drop=True)
