"""What a training shows of gradual rank: the delay, the order and the separation of its
directions.
"""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from lib.gradual_rank.orders import kendall

Vector = Float[np.ndarray, " _"]
Course = Float[np.ndarray, "_ _"]

# shares of its last value at which a direction has begun, and has ended
BEGUN = 0.1
ENDED = 0.9
SLOW = 0.1  # of the mean speed: below it the loss is on a plateau


def first_time(times: Vector, values: Vector, threshold: float) -> float:
    """When the values first reach the threshold, on the straight line of their logarithm; infinite
    where never.
    """
    above = np.flatnonzero(values >= threshold)
    if not len(above):
        return math.inf
    k = int(above[0])
    if k == 0:
        return float(times[0])
    before = np.log(values[k - 1])
    after = np.log(values[k])
    return float(
        times[k] - (after - np.log(threshold)) / (after - before) * (times[k] - times[k - 1])
    )


def at_times(
    when: Vector, times: Vector, courses: Float[np.ndarray, "seed time p"]
) -> Float[np.ndarray, "seed when p"]:
    """Where courses, known at rising times, are at other times: on the straight line between two
    neighbours; before the first time and after the last as they are there.
    """
    return np.stack(
        [np.stack([np.interp(when, times, column) for column in own.T], 1) for own in courses]
    )


def direction_times(
    times: Vector, sigma: Course, significant: float
) -> tuple[Vector, Vector, Vector]:
    """The last singular values that are significant, and when each has begun and ended."""
    last = sigma[-1][sigma[-1] > significant]
    begun, ended = (
        np.array([first_time(times, sigma[:, i], share * value) for i, value in enumerate(last)])
        for share in (BEGUN, ENDED)
    )
    return last, begun, ended


def order(last: Vector, ended: Vector) -> float:
    """Kendall's tau of size and earliness: 1 where the largest direction ends first; NaN for less
    than two.
    """
    return kendall(last, -ended)


def order_of_rises(times: Vector, sizes: Course) -> float:
    """`order` of what has grown at the end and of the times at which nine tenths of it are first
    there.
    """
    return order(sizes[-1], times[np.argmax(sizes >= 0.9 * sizes[-1], axis=0)])


def diagonal_orders(
    times: Vector, products: Float[np.ndarray, "seed time p"]
) -> dict[str, list[float]]:
    """`order_of_rises` of the products of diagonal heads, by seed: of both halves, and of W_VO, the
    second, alone.
    """
    sizes = np.abs(products)
    d = products.shape[-1] // 2
    return {
        "order": [order_of_rises(times, own) for own in sizes],
        "order_VO": [order_of_rises(times, own[:, d:]) for own in sizes],
    }


def learned_in_order(
    loss: Callable[[Float[Tensor, "seed p"]], Float[Tensor, " seed"]],
    times: Vector,
    products: Float[np.ndarray, "seed time p"],
    share: float,
    learned: float,
    *,
    every: int = 1,
    to_the_end: bool = True,
) -> dict[str, np.ndarray | list[float]]:
    """`learned_early`, seen at every so many times, and `diagonal_orders`; NaN where a course ends
    before the end.
    """
    n_seeds = len(products)
    unknown = {"order": [math.nan] * n_seeds, "order_VO": [math.nan] * n_seeds}
    early = learned_early(loss, products[:, ::every], share, learned)
    return {"rank_early": early, **(diagonal_orders(times, products) if to_the_end else unknown)}


def separate(begun: Vector, ended: Vector) -> float:
    """The share of directions, but the first, that begin after the one that ended before them has;
    NaN for one.
    """
    if len(ended) < 2:
        return math.nan
    places = np.argsort(ended, kind="stable")
    return float(np.mean(begun[places[1:]] >= ended[places[:-1]]))


def plateau_share(times: Vector, loss: Vector) -> float:
    """The share of the time from a tenth to nine tenths of the drop in which it falls at under a
    tenth of its speed.

    NaN for a loss that does not fall.
    """
    if not loss.min() < loss[0]:
        return math.nan
    fallen = (loss[0] - loss) / (loss[0] - loss.min())
    begin, end = (int(np.flatnonzero(fallen >= share)[0]) for share in (BEGUN, ENDED))
    if end <= begin + 1:
        return 0.0
    t = times[begin : end + 1]
    height = fallen[begin : end + 1]
    speed = (height[-1] - height[0]) / (t[-1] - t[0])
    steps = np.diff(t)
    return float(steps[np.diff(height) / steps < SLOW * speed].sum() / (t[-1] - t[0]))


def slopes(times: Vector, sigma: Course, n: int, window: tuple[float, float]) -> Vector:
    """How fast each of the n largest singular values of a factor grows per τ, over a window of
    times.
    """
    rows = np.array([[np.interp(t, times, sigma[:, i]) for t in window] for i in range(n)]).reshape(
        n, 2
    )
    return (rows[:, 1] - rows[:, 0]) / (window[1] - window[0])


def timing(
    times: Vector,
    loss: Vector,
    keys: Course,
    values: Course,
    factors: Float[np.ndarray, "_ 2 _"],
    risen: float,
    significant: float,
    window: tuple[float, float],
) -> dict[str, float | int]:
    """When and in which order the directions of W_KQ and W_VO rise, how fast those of W_V and W_O
    do, and the loss.
    """
    last, begun, ended = direction_times(times, values, significant)
    last_keys, _, ended_keys = direction_times(times, keys, significant)
    growth = np.append(
        [slopes(times[: len(factors)], factors[:, k], len(last), window) for k in (0, 1)], []
    )
    return {
        "first_rise": first_time(times, values[:, 0], risen),
        "first_rise_KQ": first_time(times, keys[:, 0], risen),
        "order": order(last, ended),
        "order_KQ": order(last_keys, ended_keys),
        "n_directions": len(last),
        "separate": separate(begun, ended),
        "slope_least": float(growth.min()) if len(last) else math.nan,
        "slope_most": float(growth.max()) if len(last) else math.nan,
        "plateau": plateau_share(times, loss),
        "loss": float(loss[-1] / loss[0]),
    }


def step_of_share(loss: Vector, share: float) -> int:
    """The first step at which the loss is at most that share of the first; the last one where it
    never is.
    """
    fallen = np.flatnonzero(loss <= share * loss[0])
    return int(fallen[0]) if len(fallen) else -1


def learned_early(
    loss: Callable[[Float[Tensor, "seed p"]], Float[Tensor, " seed"]],
    products: Float[np.ndarray, "seed step p"],
    share: float,
    learned: float,
) -> np.ndarray:
    """How many products of each seed are beyond `learned` where its loss is first at most that
    share of that of zero.

    -1 where it never is.
    """

    def value(p: np.ndarray) -> np.ndarray:
        return loss(torch.from_numpy(np.ascontiguousarray(p))).numpy()

    bar = share * value(np.zeros_like(products[:, 0]))
    found = np.full(len(products), -1)
    for k in range(products.shape[1]):
        p = products[:, k]
        found = np.where((value(p) <= bar) & (found < 0), (np.abs(p) > learned).sum(-1), found)
        if (found >= 0).all():
            break
    return found


Table = pd.DataFrame
Measures = dict[str, pd.Series | dict[str, pd.Series]]
N_SHUFFLES = 400
BY_SCALE = ("order", "order_KQ", "separate", "plateau", "first_rise", "slope_least", "slope_most")


def training_measures(runs: Table) -> Measures:
    """Delay, order and separation by optimiser and teacher, and the ranks on the way and at the
    end.
    """
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
    chosen = runs[
        (runs["teacher_rank"] == full)
        & (runs["log10_init_scale"] == runs["log10_init_scale"].min())
    ]
    first = chosen[chosen["optimizer"] == chosen["optimizer"].iloc[0]].set_index("seed")[
        "n_directions"
    ]
    return found | {"shuffled_order": shuffled_orders(first)}


def delays(runs: Table) -> dict[str, pd.Series]:
    r"""How the time of the first rise follows log(1/α) between the two smallest scales, by seed.

    `delay` is per log(1/α), times $\log(1 + \eta \sigma_1) / \eta$, the growth that gradient
    descent has at zero: 1 for it. `delay_change` is the change of the time as a share of it.
    Nothing where there is one scale alone.
    """
    if runs["log10_init_scale"].nunique() < 2:
        return {}
    small, large = sorted(runs["log10_init_scale"].unique())[:2]
    late, early = (runs[runs["log10_init_scale"] == s].set_index("seed") for s in (small, large))
    change = late["first_rise"] - early["first_rise"]
    return {
        "delay": change / ((large - small) * math.log(10)) * late["growth"],
        "delay_change": change.abs() / early["first_rise"],
    }


def shuffled_orders(n_directions: pd.Series) -> pd.Series:
    """A null of the order, by seed: the mean of Kendall's tau over random times of as many
    directions, two at least.
    """

    def null(seed: int, n: int) -> float:
        draw = np.random.default_rng(seed)
        return float(
            np.mean([kendall(np.arange(n), draw.permutation(n)) for _ in range(N_SHUFFLES)])
        )

    cases = zip(n_directions.index.tolist(), n_directions.tolist(), strict=True)
    return pd.Series({seed: null(seed, n) for seed, n in cases if n > 1}, dtype=float)


def few_measures(few: Table) -> Measures:
    """Effective ranks where the minimum is not unique; under noise the best and the last test loss,
    over that of gd.
    """
    found: Measures = {}
    for (optimizer, n, noise), own in few.groupby(["optimizer", "n_samples", "noise"], sort=False):
        rows = own.set_index("seed")
        if noise == 0:
            found |= {
                f"{optimizer}_{key}_{n}": rows[key]
                for key in ("effective_rank_KQ", "effective_rank_VO")
            }
        else:
            base = few[(few["optimizer"] == "gd") & (few["noise"] == noise)].set_index("seed")[
                "best_test_loss"
            ]
            found[f"{optimizer}_best_over_gd"] = rows["best_test_loss"] / base
            found[f"{optimizer}_last_over_best"] = rows["last_test_loss"] / rows["best_test_loss"]
    return found


def sign_measures(changes: Table, slopes: Table, diagonal: Table, rises: Table) -> Measures:
    """The ray's forecast against sign descent, Adam's slope with long and short memory, descent's
    time and order.
    """
    off = changes.assign(
        error=(changes["measured"] - changes["predicted"]).abs(),
        same=(changes["measured_coordinate"] == changes["predicted_coordinate"]).astype(float),
    )
    betas = slopes["beta_2"]
    long, short = (slopes[betas == beta].set_index("seed") for beta in (betas.max(), betas.min()))
    gd, adam = (
        diagonal[diagonal["optimizer"] == name].set_index("seed") for name in ("gd", "adam")
    )
    flow = diagonal[diagonal["optimizer"] == "gradient flow"]
    predicted = changes.drop_duplicates("seed").set_index("seed")["predicted"]
    waited = (
        rises[rises["optimizer"] == "gd"]
        .sort_values("log10_init_scale")
        .groupby("seed")["first_rise"]
        .last()
    )
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
    """How far sign descent is from sign flow at most: of the signed roots, and of u and v before
    and after a change.
    """
    parts = {
        "sign_flow_roots": distances["method"] == "roots",
        "sign_flow_before": (distances["method"] == "weights") & ~distances["passed"],
        "sign_flow_after": (distances["method"] == "weights") & distances["passed"],
    }
    least = distances.loc[distances["method"] == "weights", "log10_init_scale"].min()
    small = distances["log10_init_scale"].isin([-math.inf, least])
    return {
        name: distances[rows & small].groupby("seed")["distance"].max()
        for name, rows in parts.items()
    }


def flow_distances(paths: Table, events: Table) -> Table:
    """The largest difference of a product from sign flow's, at every look; whether a product has
    passed zero there.
    """
    passes = events[events["kind"] == "passes"].groupby("seed")["time"].min()
    base = paths[paths["method"] == "flow"].set_index(["seed", "time"])["p"]
    rows = paths[paths["method"] != "flow"].copy()
    flow = base.loc[list(zip(rows["seed"], rows["time"], strict=True))]
    rows["distance"] = [float(np.abs(a - b).max()) for a, b in zip(rows["p"], flow, strict=True)]
    rows["passed"] = rows["time"] >= rows["seed"].map(passes).fillna(math.inf)
    return rows.drop(columns="p").reset_index(drop=True)


def by_scale(table: Table, column: str) -> dict[str, pd.Series]:
    """A column by seed at every init scale at which it was taken, the smallest last."""
    values = pd.Series(table[column].to_numpy(float), table["seed"], name=column)
    scales = table["log10_init_scale"].to_numpy()
    return {
        f"1e{s:g}": of for s in np.unique(scales)[::-1] if len(of := values[scales == s].dropna())
    }
