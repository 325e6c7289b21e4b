r"""The start of an adapter $W = W_0 + s B A$ with $B(0) = 0$: when it learns which direction.

B is [d, r], A is [r, d], $s = \alpha / r$ (LoRA; Hu et al. 2021, arXiv 2106.09685) or
$\alpha / \sqrt r$ (rsLoRA; Kalajdzievski 2023, arXiv 2312.03732), and the learning rate of B is λ
times that of A (LoRA+; Hayou, Ghosh, Yu 2024, arXiv 2402.12354). The flow is
$\dot B = \lambda s G A^\top$, $\dot A = s B^\top G$ with $G = -\partial L / \partial W$. With
$B = \sqrt\lambda \tilde B$ it is $\dot{\tilde B} = \kappa G A^\top$,
$\dot A = \kappa \tilde B^\top G$, and the update is $\kappa \tilde B A$, with one number, the
*pace* $\kappa = s \sqrt\lambda$. Proofs are in docs/adapter_start.md.

Let σ, u, v be a singular triplet of G at the start, and $a = \|A(0) v\|$. Times are in the flow's
own unit, which is steps times the learning rate of A.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp

Vector = Float[np.ndarray, " n"]
Square = Float[np.ndarray, "d d"]
Numbers = float | Float[np.ndarray, "*n"]
Columns = Float[np.ndarray, "r n"]
State = Float[np.ndarray, " state"]
Event = Callable[[float, State], float]
RTOL = 1e-9  # of the integrator, DOP853
ATOL = 1e-13  # times the largest entry of A at the start
LEARNED = 0.5  # the share of its target at which a direction counts as learned
BEYOND = 1.001  # a flow ends where all directions are so far beyond their aims


def scaling_of(alpha: float, rank: int, *, rooted: bool = False) -> float:
    r"""The scaling s of an adapter: $\alpha / r$, or, `rooted` as rsLoRA has it,
    $\alpha / \sqrt r$.
    """
    return alpha / (math.sqrt(rank) if rooted else rank)


def pace(scaling: float, ratio: float) -> float:
    r"""The pace $\kappa = s \sqrt\lambda$, the one number by which an adapter's settings enter.

    The `ratio` λ is the learning rate of B over that of A.

    Raises:
        ValueError: A number is not positive.
    """
    if not (scaling > 0 and ratio > 0):
        wanted = "wanted a positive scaling and ratio of learning rates"
        raise ValueError(f"{wanted}, got {scaling} and {ratio}")
    return scaling * math.sqrt(ratio)


def small_update_time(p: Numbers, sigma: Numbers, a_squared: Numbers, kappa: float) -> Numbers:
    r"""When $u^\top (W - W_0) v$ reaches p, as long as the update has not changed G.

    $T(p) = \operatorname{asinh}(2 p / (\kappa a^2)) / (2 \kappa \sigma)$, since
    $\tilde b = a \sinh(\kappa \sigma t)$ and $\|A v\| = a \cosh(\kappa \sigma t)$.
    """
    return np.arcsinh(2 * np.asarray(p) / (kappa * a_squared)) / (2 * kappa * sigma)


def exact_time(
    p: Numbers, target: Numbers, a_squared: Numbers, kappa: float, curvature: Numbers = 1.0
) -> Numbers:
    r"""When one direction of a quadratic loss reaches p, where its pull is h (target - p).

    The curvature h is 1 where the loss is $\|M - W\|_F^2 / 2$, and then the target is σ; in
    general it is σ / h. As $\tilde b^2 - \|A v\|^2 = -a^2$ is conserved,
    $\dot p = \kappa^2 h (\theta - p) \sqrt{a^4 + 4 p^2 / \kappa^2}$. With the target θ,
    $\varepsilon = \kappa a^2 / (2 \theta)$ and $x = p / \theta < 1$ the integral of 1 / ṗ is

    $T(p) = (\operatorname{asinh} \frac{\varepsilon^2 + x}{\varepsilon (1 - x)} -
    \operatorname{asinh} \varepsilon) / (2 \kappa \sigma \sqrt{1 + \varepsilon^2})$.

    Raises:
        ValueError: An aim p is not below its target, where the flow never comes.
    """
    if not np.all(np.asarray(p) < target):
        raise ValueError(f"wanted aims below the targets {target}, got {p}")
    epsilon = kappa * np.asarray(a_squared) / (2 * np.asarray(target))
    x = np.asarray(p) / target
    grown = np.arcsinh((epsilon**2 + x) / (epsilon * (1 - x))) - np.arcsinh(epsilon)
    return grown / (2 * kappa * curvature * target * np.sqrt(1 + epsilon**2))


def expected_at(
    learned: Float[np.ndarray, " look"], target: float, a_squared: float, kappa: float, sigma: float
) -> Float[np.ndarray, " look"]:
    """When `exact_time` has learned as much of a direction; infinite from its target on."""
    below = learned < target
    p = np.where(below, learned, 0.0)
    return np.where(below, exact_time(p, target, a_squared, kappa, sigma / target), np.inf)


class Forecast(NamedTuple):
    """When each direction is learned, by the start alone."""

    times: Vector  # by direction
    a_squared: Vector  # what counts of its start


def crowded(time: Callable[[int, float], float], a: Columns) -> Forecast:
    r"""The forecast in which each direction has what those before it leave of its start.

    `time(i, a_squared)` is when direction i is learned alone, from that start. What has been
    learned holds a place of its own in the r dimensions of the adapter: the part along it of every
    other $a_k = A(0) v_k$ (a column of `a`) decays. So the directions are taken one after another,
    the earliest first, and what counts of each later $a_k$ is what is orthogonal to all that were
    taken (Gram-Schmidt).

    Raises:
        ValueError: There are more directions than the rank r.
    """
    rank, n = a.shape
    if n > rank:
        raise ValueError(f"wanted at most {rank} directions, the rank of the adapter, got {n}")
    left = a.copy()
    times = np.full(n, np.inf)
    counted = np.zeros(n)
    for _ in range(n):
        squares = (left**2).sum(0)
        waiting = np.flatnonzero(np.isinf(times)).tolist()
        expected = {i: time(i, float(squares[i])) for i in waiting}
        first = min(expected, key=expected.__getitem__)
        times[first] = expected[first]
        counted[first] = squares[first]
        taken = left[:, first] / np.linalg.norm(left[:, first])
        left -= np.outer(taken, taken @ left)
    return Forecast(times, counted)


class Triplets(NamedTuple):
    """Singular triplets: columns u, values σ, columns v."""

    U: Float[np.ndarray, "d n"]
    sigma: Vector
    V: Float[np.ndarray, "d n"]


@dataclass(frozen=True)
class LinearPull:
    r"""The pull $G = G_0 - (W - W_0) H$ of a quadratic loss on what a layer W gives for inputs x.

    H is the curvature on the side of the inputs, for a squared error their second moment
    $\langle x x^\top \rangle$ times its factor, and the identity for $\|M - W\|_F^2 / 2$.
    """

    G: Square  # at the start, -∂L/∂W
    H: Square

    def at(self, update: Square) -> Square:
        """The pull where W - W₀ is this update."""
        return self.G - update @ self.H

    def triplets(self, n: int) -> Triplets:
        """The first n singular triplets of the pull at the start."""
        U, sigma, Vh = np.linalg.svd(self.G)
        return Triplets(U[:, :n], sigma[:n], Vh[:n].T)

    def curvatures(self, n: int) -> Vector:
        r"""The curvature $v^\top H v$ of the loss along each of these triplets."""
        V = self.triplets(n).V
        return (V * (self.H @ V)).sum(0)


class Forecasts(NamedTuple):
    """When directions are learned by the start alone, in several ways; an entry per direction."""

    counted: Vector  # the squared part of A v that counts
    forecast: Vector  # each direction with what those before it leave
    alone: Vector  # each as if it were the only one
    small: Vector  # the same, as if the update changed no gradient
    equal: Vector  # alone, with every A v equally long
    shuffled: Vector  # the forecast with the σ of the direction before


def forecasts(pull: LinearPull, A: Float[np.ndarray, "r d"], n: int, kappa: float) -> Forecasts:
    """What the start says of the first n directions: when half of each target is learned.

    The nulls are `equal`, as if every A v were equally long, and `shuffled`, with σ and the
    curvature of the direction before.
    """
    _, sigma, V = pull.triplets(n)
    h = pull.curvatures(n)
    target = sigma / h
    a = A @ V
    squares = (a**2).sum(0)

    def time(i: int, a_squared: float, of: int = 0) -> float:
        k = (i - of) % n
        return float(exact_time(LEARNED * target[k], target[k], a_squared, kappa, h[k]))

    forecast = crowded(time, a)
    return Forecasts(
        counted=forecast.a_squared,
        forecast=forecast.times,
        alone=np.asarray(exact_time(LEARNED * target, target, squares, kappa, h)),
        small=np.asarray(small_update_time(LEARNED * target, sigma, squares, kappa)),
        equal=np.asarray(exact_time(LEARNED * target, target, squares.mean(), kappa, h)),
        shuffled=crowded(lambda i, square: time(i, square, 1), a).times,
    )


def learned_of(U: Columns, update: Square, V: Columns) -> Vector:
    r"""How much of each direction an update has, $u_i^\top (W - W_0) v_i$."""
    return (U * (update @ V)).sum(0)


def times_in_flow(
    pull: LinearPull,
    factors: tuple[Float[np.ndarray, "d r"], Float[np.ndarray, "r d"]],
    aims: Vector,
    *,
    scaling: float,
    ratio: float,
    end: float,
) -> tuple[Vector, Float[np.ndarray, " time"], Float[np.ndarray, "time n"]]:
    r"""When $u_i^\top (W - W_0) v_i$ first reaches each aim in the flow of B and A.

    The flow is that of the factors (B, A) themselves, with s (`scaling`) and λ (`ratio`) apart,
    until all have reached their aims, or to the `end`; a time that is not reached is infinite.
    Behind the times come those of the integrator's own steps, and $u_i^\top (W - W_0) v_i$ there.

    Raises:
        ArithmeticError: The integrator stops on its way.
    """
    B, A = factors
    U, _, V = pull.triplets(len(aims))
    to_B = (slice(0, B.size), B.shape)
    to_A = (slice(B.size, None), A.shape)

    def slope(_: float, state: State) -> State:
        B_now, A_now = (state[part].reshape(shape) for part, shape in (to_B, to_A))
        G = scaling * (pull.G - scaling * B_now @ A_now @ pull.H)
        return np.concatenate([ratio * (G @ A_now.T).ravel(), (B_now.T @ G).ravel()])

    def learned(state: State) -> Vector:
        B_now, A_now = (state[part].reshape(shape) for part, shape in (to_B, to_A))
        return scaling * ((U.T @ B_now) * (A_now @ V).T).sum(1)

    found = solve_ivp(
        slope,
        (0.0, end),
        np.concatenate([B.ravel(), A.ravel()]),
        method="DOP853",
        rtol=RTOL,
        atol=ATOL * np.abs(A).max(),
        events=[*(_reached(learned, i, aims[i]) for i in range(len(aims))), _all(learned, aims)],
    )
    if not found.success:
        raise ArithmeticError(f"the flow of an adapter stopped at {found.t[-1]}: {found.message}")
    crossings = found.t_events[:-1] if found.t_events else []
    times = np.array([when[0] if len(when) else np.inf for when in crossings])
    return times, found.t, np.array([learned(state) for state in found.y.T])


def _reached(learned: Callable[[State], Vector], i: int, aim: float) -> Event:
    def above(_: float, state: State) -> float:
        return float(learned(state)[i] - aim)

    above.direction = 1.0  # pyright: ignore[reportFunctionMemberAccess]
    return above


def _all(learned: Callable[[State], Vector], aims: Vector) -> Event:
    """Whether all are a little beyond their aims, so that each has crossed its own before."""

    def above(_: float, state: State) -> float:
        return float((learned(state) / aims).min() - BEYOND)

    above.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    return above
