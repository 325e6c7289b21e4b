"""What a training shows: delay, order and separation of its directions, and what it conserves."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lib.matrices.directions import Course, Vector, direction_times, first_time, order, separate

Factors = Float[Tensor, "side product *batch row col"]


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


def around(times: Vector, when: Sequence[float]) -> Int[np.ndarray, " _"]:
    """The places, in order, of the rising times between which a course is read at others.

    A straight line between neighbours needs no more of a course than what it is at these times.
    """
    before = np.searchsorted(times, when, side="right") - 1
    places = np.concatenate([before, before + 1])
    return np.unique(places.clip(0, len(times) - 1))


def slopes(
    times: Vector, sigma: Float[np.ndarray, "time side d"], window: tuple[float, float]
) -> Float[np.ndarray, "side d"]:
    """How fast the singular values of both factors grow per τ within a window.

    Between two times a singular value is taken as a straight line.
    """
    at_ends = np.array(
        [[np.interp(window, times, value) for value in factor.T] for factor in sigma.swapaxes(0, 1)]
    )
    return np.diff(at_ends)[..., 0] / (window[1] - window[0])


def timing(
    times: Vector,
    values: Course,
    growth: Float[np.ndarray, "side d"],
    risen: float,
    significant: float,
) -> dict[str, float]:
    """When and in which order the directions of W_VO rise, and how fast W_V and W_O grow.

    Their growth counts in as many of the largest singular values as W_VO has significant ones.
    """
    last, begun, ended = direction_times(times, values, significant)
    counted = growth[:, : len(last)]
    return {
        "first_rise": first_time(times, values[:, 0], risen),
        "order": order(last, ended),
        "separate": separate(begun, ended),
        "slope_least": float(counted.min()) if len(last) else math.nan,
        "slope_most": float(counted.max()) if len(last) else math.nan,
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
    r"""For each product, how much of the change of its factors changes what flows conserve.

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
