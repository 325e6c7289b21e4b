"""What a training shows: delay, order and separation of its directions, and what it conserves."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import kendalltau
from torch import Tensor

Vector = Float[np.ndarray, " _"]
Course = Float[np.ndarray, "_ _"]
Factors = Float[Tensor, "side product *batch row col"]

# a direction has begun, and has ended, at these shares of its last value
BEGUN = 0.1
ENDED = 0.9


def first_time(times: Vector, values: Vector, threshold: float) -> float:
    """When the values first reach the threshold; infinite if they never do.

    Between two times their logarithm is taken as a straight line.
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
    """Courses that are known at rising times, read at other times.

    Between two neighbours a course is a straight line; before the first time and after the last it
    stays as it is there.
    """
    return np.stack(
        [np.stack([np.interp(when, times, column) for column in own.T], 1) for own in courses]
    )


def direction_times(
    times: Vector, sigma: Course, significant: float
) -> tuple[Vector, Vector, Vector]:
    """The last singular values that are significant, and when each of them has begun and ended."""
    last = sigma[-1][sigma[-1] > significant]
    begun, ended = (
        np.array([first_time(times, sigma[:, i], share * value) for i, value in enumerate(last)])
        for share in (BEGUN, ENDED)
    )
    return last, begun, ended


def order(last: Vector, ended: Vector) -> float:
    """Kendall's tau of size and earliness: 1 if the largest direction ends first.

    NaN stands for fewer than two directions.
    """
    return float(kendalltau(last, -ended).statistic) if len(last) > 1 else math.nan


def order_of_rises(times: Vector, sizes: Course) -> float:
    """The `order` of the last sizes and of the times when nine tenths of each are first reached."""
    return order(sizes[-1], times[np.argmax(sizes >= 0.9 * sizes[-1], axis=0)])


def diagonal_orders(
    times: Vector, products: Float[np.ndarray, "seed time p"]
) -> dict[str, list[float]]:
    """The `order_of_rises` of each seed's diagonal head.

    `order` is that of all products, and `order_VO` that of the second half, W_VO, alone.
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
    """What `learned_early` finds, looking at one time in `every`, and the `diagonal_orders`.

    The orders are NaN for a course that stops before the end of training.
    """
    n_seeds = len(products)
    unknown = {"order": [math.nan] * n_seeds, "order_VO": [math.nan] * n_seeds}
    early = learned_early(loss, products[:, ::every], share, learned)
    return {"rank_early": early, **(diagonal_orders(times, products) if to_the_end else unknown)}


def separate(begun: Vector, ended: Vector) -> float:
    """The share of directions after the first that begin once the one before them has ended.

    "Before" is in the order in which they end. NaN stands for fewer than two directions.
    """
    if len(ended) < 2:
        return math.nan
    places = np.argsort(ended, kind="stable")
    return float(np.mean(begun[places[1:]] >= ended[places[:-1]]))


def slopes(times: Vector, sigma: Course, n: int, window: tuple[float, float]) -> Vector:
    """How fast each of the n largest singular values of a factor grows per τ within a window."""
    rows = [np.interp(window, times, sigma[:, i]) for i in range(n)]
    return np.diff(np.reshape(rows, (n, 2)))[:, 0] / (window[1] - window[0])


def timing(
    times: Vector,
    values: Course,
    factors: Float[np.ndarray, "_ 2 _"],
    risen: float,
    significant: float,
    window: tuple[float, float],
) -> dict[str, float]:
    """When and in which order the directions of W_VO rise, and how fast W_V and W_O grow."""
    last, begun, ended = direction_times(times, values, significant)
    growth = np.append(
        [slopes(times[: len(factors)], factors[:, k], len(last), window) for k in (0, 1)], []
    )
    return {
        "first_rise": first_time(times, values[:, 0], risen),
        "order": order(last, ended),
        "separate": separate(begun, ended),
        "slope_least": float(growth.min()) if len(last) else math.nan,
        "slope_most": float(growth.max()) if len(last) else math.nan,
    }


def step_of_share(loss: Vector, share: float) -> int:
    """The first step at which the loss is at most a share of the first loss.

    It is the last step (-1) if there is none.
    """
    fallen = np.flatnonzero(loss <= share * loss[0])
    return int(fallen[0]) if len(fallen) else -1


def learned_early(
    loss: Callable[[Float[Tensor, "seed p"]], Float[Tensor, " seed"]],
    products: Float[np.ndarray, "seed step p"],
    share: float,
    learned: float,
) -> np.ndarray:
    """How many products of each seed are beyond `learned` when its loss first is low enough.

    Low enough is a share of the loss at zero; -1 stands for a loss that never is.
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


def changes(
    before: Factors, after: Factors, products: Sequence[str]
) -> dict[str, Float[Tensor, "*batch"]]:
    r"""How much of the change of each product's factors is a change of what flows keep, by name.

    It is the change of the difference of the factors' matrices over that of their sum, in Frobenius
    norms. `square` is of $P^\top P$ and $Q^\top Q$: gradient flow keeps $P^\top P - Q^\top Q$.
    `root` is of their roots: Muon flow of aligned weights keeps $\sqrt{P^\top P} - \sqrt{Q^\top
    Q}$.
    """
    found = {}
    for kind, of in (("square", square), ("root", root)):
        P, Q = of(after) - of(before)
        shares = torch.linalg.matrix_norm(P - Q) / torch.linalg.matrix_norm(P + Q)
        for name, share in zip(products, shares, strict=True):
            found[f"{kind}_change_{name}"] = share
    return found


def square(W: Float[Tensor, "*batch row col"]) -> Float[Tensor, "*batch col col"]:
    r"""The Gram matrix $W^\top W$."""
    return W.mT @ W


def root(W: Float[Tensor, "*batch row col"]) -> Float[Tensor, "*batch col col"]:
    r"""The root $\sqrt{W^\top W} = V \Sigma V^\top$ of the Gram matrix of $W = U \Sigma V^\top$."""
    _, sigma, Vh = torch.linalg.svd(W, full_matrices=False)
    return Vh.mT @ (sigma[..., None] * Vh)


def diagonal_shares(
    before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor]
) -> dict[str, Float[np.ndarray, "*batch"]]:
    """What ||u| - |v|| and |u² - v²| are, in multiples of what they were.

    They are medians over the pairs. Sign flow keeps the first, gradient flow the second.
    """
    (first, of_first), (last, of_last) = (
        ((u.abs() - v.abs()).abs(), u.abs() + v.abs()) for u, v in (before, after)
    )
    lengths = last / first
    # u² - v² = (|u| - |v|) (|u| + |v|), without rounding of small numbers
    found = {"lengths_kept": lengths, "squares_kept": lengths * (of_last / of_first)}
    return {name: share.median(-1).values.numpy() for name, share in found.items()}
