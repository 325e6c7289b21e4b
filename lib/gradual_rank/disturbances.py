r"""Disturbances of a flow, and stages that begin elsewhere than where the flow enters them.

Assumption 4.3 of Boix-Adserà et al. (2023) says that a flow whose weights that are not negligible
are disturbed comes back, Assumption 4.4 that a stage ends at its plateau wherever near the plateau
before it begins. Points are in the log coordinates of `flow`; weights are u and v of the products
$p = u \odot v$.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from lib.gradual_rank.flow import LogCoordinates, Samples, log_flow
from lib.training.devices import generator
from lib.training.stiff_flow import Loss, Vector

N_FINE = 2000  # times of a flow among which it is disturbed
NEGLIGIBLE = -2000.0  # the log c of a point with u = v, as good as zero
# what is disturbed at a random time: the last is the null of the claim that the products return
Disturbance = Literal["balanced", "independent", "everywhere"]
DISTURBANCES: tuple[Disturbance, ...] = ("balanced", "independent", "everywhere")
Kick = Literal["none", "balanced", "independent"]
ELSEWHERE: tuple[Kick, ...] = ("none", "balanced", "independent")
Mask = Bool[np.ndarray, " n"]
Course = Callable[..., list[Vector]]  # `states_at` of one loss
Times = Float[np.ndarray, " time"]
Noise = Float[np.ndarray, "2 n"]  # of u, and of v


@dataclass(frozen=True)
class Point:
    """A point of the flow: its log coordinates and the signs of u + v and u - v."""

    here: LogCoordinates
    plus: Vector
    minus: Vector

    def weights(self, y: Vector) -> Float[np.ndarray, " two_n"]:
        """(u, v) at another y of the same c and signs."""
        return np.concatenate(self.here.weights(y, self.plus, self.minus))


def states_at(
    start: LogCoordinates,
    times: Times,
    active: Mask | None = None,
    *,
    loss: Loss,
    rtol: float,
    atol: float,
    curvature: Loss,
) -> list[Vector]:
    """The states y of `log_flow` at rising times, the first of which is 0.

    With `active`, the products of the other coordinates are held at zero.
    """
    numbers = {"rtol": rtol, "atol": atol, "curvature": curvature, "active": active}
    followed = log_flow(loss, start, float(times[-1]), **numbers)
    samples = Samples(start.y, times.tolist())
    return [y for step in followed for _, y in samples.seen(step)]


def gaussians(seed: int, *purpose: int | str, sigma: float, size: int) -> Noise:
    """The noise N(0, σ²) on u and on v for a purpose of a seed."""
    return source(seed, *purpose).normal(0, sigma, (2, size))


def source(seed: int, *purpose: int | str) -> np.random.Generator:
    """The source of what is drawn for a purpose of a seed."""
    return np.random.default_rng(generator(seed, *purpose).initial_seed())


def disturbed_points(
    course: Course,
    u: Vector,
    v: Vector,
    log_scale: float,
    joins: Float[np.ndarray, " join"],
    *,
    random: np.random.Generator,
    n_random: int,
    n_rises: int,
    nonnegligible: float,
) -> Iterator[tuple[str, float, Point]]:
    r"""The points at which the flow from $e^{\mathrm{log\_scale}} (u, v)$ is disturbed: their kind,
    time and place.

    They are at random times between the first and the last at which a coordinate joins, and at the
    first rises: where a weight $|p|^{1/2}$ that is negligible at the start stops being so. There
    are none where nothing ever joins.
    """
    if not len(joins):
        return
    start = LogCoordinates.of(u, v, log_scale)
    fine = np.linspace(0.0, joins[-1], N_FINE)
    ys = np.stack(course(start, fine))
    above = np.sqrt(np.abs(np.stack([start.products(y) for y in ys]))) > nonnegligible
    rises = [
        int(np.argmax(above[:, i]))
        for i in np.flatnonzero(above.any(0))
        if above[:, i].argmax() > 0
    ]
    times = random.uniform(joins[0], joins[-1], n_random)
    chosen = [("random", int(np.searchsorted(fine, t))) for t in times]
    chosen += [("rise", k) for k in sorted(rises)[:n_rises]]
    for kind, k in chosen:
        here = LogCoordinates(ys[k], start.log_c)
        yield kind, float(fine[k]), Point(here, np.sign(u + v), np.sign(u - v))


def with_noise(
    point: Point, kind: Disturbance, noise: Noise, nonnegligible: float
) -> tuple[Point, Mask]:
    """The point with noise on the weights that are not negligible, and which coordinates have some.

    The noise is `independent` on u and v, or `balanced`: such that u² − v² stays; or it is
    `everywhere`, on u and v of all products.
    """
    here = point.here
    u, v = np.split(point.weights(here.y), 2)
    touched = np.maximum(np.abs(u), np.abs(v)) > nonnegligible
    if kind == "everywhere":
        touched = np.ones(len(here.y), bool)
    u, v = u + noise[0] * touched, v + noise[1] * touched
    if kind == "balanced":  # both keep their signs, and c is the same
        y = np.where(touched, np.sign(here.y) * here.level(np.maximum(u**2, 1e-300)), here.y)
        return Point(LogCoordinates(y, here.log_c), point.plus, point.minus), touched
    moved = LogCoordinates.of(np.where(touched, u, 2.0), np.where(touched, v, 1.0))
    both = LogCoordinates(
        np.where(touched, moved.y, here.y), np.where(touched, moved.log_c, here.log_c)
    )
    plus = np.where(touched, np.sign(u + v), point.plus)
    minus = np.where(touched, np.sign(u - v), point.minus)
    return Point(both, plus, minus), touched


def left_of(
    moved: Point, path: Sequence[Vector], point: Point, base: Sequence[Vector]
) -> dict[str, float]:
    """The distances of a disturbed path from the undisturbed one at its end, over the first ones.

    The distance of the products is the largest difference, the one of the weights (u, v) is
    Euclidean.
    """
    far, near = (
        float(np.linalg.norm(moved.weights(path[k]) - point.weights(base[k]))) for k in (0, -1)
    )
    first, last = (
        float(np.abs(moved.here.products(path[k]) - point.here.products(base[k])).max())
        for k in (0, -1)
    )
    return {"ratio_products": last / first, "ratio_weights": near / far}


def begun_elsewhere(n_stages: int, n_kicks: int) -> list[int]:
    """The stages that are begun elsewhere: at most `n_kicks`, spread evenly from the first on."""
    return sorted({1 + i * n_stages // n_kicks for i in range(n_kicks)} if n_stages else ())


def error_from_elsewhere(
    course: Course,
    stages: pd.DataFrame,
    k: int,
    kick: Kick,
    noise: Noise,
    size: float,
    duration: float,
) -> float:
    r"""The largest error of a product after stage k has begun elsewhere and lasted for `duration`.

    The stages are those of Algorithm 1, and the products off the support of stage k are held at
    zero. Weights $|p|^{1/2}$ of the plateau before get `independent` noise on |u| and |v|, or
    `balanced` noise, the same on both; or `none`, but the newcomer has u = v of `size`, as
    Algorithm 1 begins.
    """
    before, after = stages.iloc[k - 1], stages.iloc[k]
    i = int(after["coordinate"])
    p = np.array(before["p"])
    active = p != 0
    active[i] = True
    sign = np.sign(p)
    sign[i] = after["sign"]
    root = np.sqrt(np.abs(p))
    u, v = np.abs(root + noise[0]), np.abs(root + noise[1])
    if kick == "none":
        u = np.where(np.arange(len(p)) == i, size, root)
    if kick != "independent":
        v = u
    u, v = (np.where(active, w, 1.0) for w in (u, v))
    if kick == "independent":
        start = LogCoordinates.of(u, np.where(active, sign, 0.5) * v)
    else:
        tiny = np.full(len(p), NEGLIGIBLE)
        at = LogCoordinates(np.zeros(len(p)), tiny)
        start = LogCoordinates(np.where(active, sign, 0.0) * at.level(u * v), tiny)
    times = np.array([0.0, duration])
    end = np.where(active, start.products(course(start, times, active)[-1]), 0.0)
    return float(np.abs(end - np.array(after["p"])).max())
