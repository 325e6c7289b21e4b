r"""Algorithm 1 of Boix-Adserà et al. (2023): the stages of gradient flow from a vanishing start.

Between stages nothing is seen: each coordinate off the support carries a charge $\beta_i \in [-1,
1]$ ($1 - b_i$ in the paper) that moves as $\dot\beta_i = g_i(\theta^k)$ in units of log(1 /
init_scale), until the first reaches ±1. That coordinate joins the support with the sign of its g,
and the flow on the support runs, in no time, to its next stationary point. The products p alone are
followed: (u, v) is (|p|^½, sign(p) |p|^½) in the paper's gauge.
"""

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float

from lib.gradual_rank.rest import refined, rest_nearby
from lib.training.stiff_flow import NEAR, Restrictable, StalledError, Vector, gradient, stiff_flow

OVERFLOW = math.log(1e6)  # the largest log|p| in trial steps of the implicit solver
# a g below this share of max|g(0)| vanishes: so does that of a twin of a coordinate at rest
ROUNDING = 1e-11
GONE = 1e-8  # |p| below which a coordinate that still falls has left the support
MAX_STEPS = 100_000  # a stage takes no more on its way to rest
# Where a stage is slower than so many times the velocity of rest, Newton's method looks for rest,
# once in so many steps; every log|p| may be so far from there.
SLOW = 100
LOOK_EVERY = 5
NEARBY = 0.03
FINEST = 1e-12  # of max|g(0)|: how far g falls at rest


class Valued(Restrictable, Protocol):
    """A loss whose value can be asked for."""

    def value(self, p: torch.Tensor) -> torch.Tensor:
        """L(p)."""
        ...


@dataclass(frozen=True)
class Stage:
    r"""The plateau of stage k, from T_k on, in units of log(1 / init_scale).

    Stage 0 is the start, with p = 0. `coordinate` and `sign` are what joined the support at T_k (-1
    and 0 at the start), `dropped` what then left it. `next_time` is $T_{k+1}$, infinite where
    nothing will ever join; `gap` is how much later the second candidate would join (Assumption 4.2:
    positive). `residual` is $\max_A |g|$ over $\max |g(0)|$. `charge` is β at T_k.
    """

    k: int
    time: float
    coordinate: int
    sign: int
    p: Vector
    support: Bool[np.ndarray, " p"]
    dropped: tuple[int, ...]
    g: Vector
    charge: Vector
    residual: float
    next_time: float
    gap: float


def greedy(
    loss: Restrictable,
    size: int,
    *,
    kick: float,
    stationary: float,
    rtol: float,
    atol: float,
    curvature: Restrictable | None = None,
    lowest: float = -1.0,
) -> Iterator[Stage]:
    """Yield stage after stage, without end unless nothing joins any more.

    At the charge `lowest` a coordinate joins with the negative sign; it is -inf where no product
    can be negative.

    A new coordinate starts from |p| = `kick`, and a stage is at rest when g on its support is
    `stationary`, a share of the smaller of max|g(0)| and the newcomer's g; then Newton's method
    refines it. Raises `StalledError`.
    """
    p = np.zeros(size)
    charge = np.zeros(size)
    support = np.zeros(size, bool)
    g = gradient(loss, p)
    first = float(np.abs(g).max())
    k = 0
    time = 0.0
    newest = -1
    sign = 0
    dropped: tuple[int, ...] = ()
    while True:
        seen = np.where(np.abs(g) > ROUNDING * first, g, 0.0)
        wait = _waits(charge, seen, support, lowest)
        order = np.argsort(wait, kind="stable")
        step = float(wait[order[0]])
        gap = float(wait[order[1]] - step) if size > 1 and math.isfinite(step) else math.inf
        residual = float(np.abs(g[support]).max(initial=0.0)) / first if first else 0.0
        here = p.copy(), support.copy(), dropped, g.copy(), charge.copy()
        yield Stage(k, time, newest, sign, *here, residual, time + step, gap)
        if not math.isfinite(step):
            return
        charge[~support] += g[~support] * step
        newest = int(order[0])
        sign = int(np.sign(g[newest]))
        k += 1
        time += step
        before = support.copy()
        before[newest] = True
        p[newest] = sign * kick
        tolerance = stationary * min(first, abs(float(g[newest])))
        bent = loss if curvature is None else curvature
        p = _settle(loss, p, tolerance, FINEST * first, rtol, atol, bent)
        support = p != 0
        dropped = tuple(np.flatnonzero(before & ~support).tolist())
        if newest in dropped:
            warnings.warn(
                f"stage {k}: coordinate {newest} left the support in the stage it joined",
                stacklevel=2,
            )
        charge[newest] = sign
        # b is exactly 0 or 2 there, and where a coordinate has left
        charge[support] = np.sign(p[support])
        p = refined(loss, p, FINEST * first)
        g = gradient(loss, p)


def stage_row(loss: Valued, stage: Stage) -> dict[str, Any]:
    """What tables of stages say of one: where it is, and how stable and strict a minimum."""
    on = np.flatnonzero(stage.support)
    p = torch.from_numpy(stage.p)
    H = loss.restricted(torch.from_numpy(on)).hessian(p[on], torch.arange(len(on))).numpy()
    in_products, in_weights = strong_minimum(H, stage.p[on])
    return {
        "stage": stage.k,
        "time": stage.time,
        "next_time": stage.next_time,
        "gap": stage.gap,
        "coordinate": stage.coordinate,
        "sign": stage.sign,
        "loss": float(loss.value(p)) / float(loss.value(torch.zeros_like(p))),
        "residual": stage.residual,
        "n_active": len(on),
        "dropped": np.array(stage.dropped, np.int64),
        "n_dropped": len(stage.dropped),
        "learning_rate_limit": stability_limit(H, stage.p[on]),
        "strictness_products": in_products,
        "strictness_weights": in_weights,
        "g": stage.g,
        "charge": stage.charge,
        "p": stage.p,
        "support": stage.support,
    }


def stage_rows(
    loss: Valued, stages: Iterable[Stage], max_stages: int, stop_loss: float
) -> list[dict[str, Any]]:
    """The `stage_row` of each stage up to the last that is wanted, or the first with a low loss.

    Low is below the share `stop_loss` of the loss at zero; the start is stage 0.
    """
    rows = []
    for stage in itertools.islice(stages, max_stages + 1):
        rows.append(stage_row(loss, stage))
        if rows[-1]["loss"] < stop_loss:
            break
    return rows


def _waits(charge: Vector, g: Vector, support: Bool[np.ndarray, " p"], lowest: float) -> Vector:
    """How long until each coordinate off the support has the charge 1, or `lowest` where g < 0."""
    wait = np.full_like(g, np.inf)
    moves = ~support & (g != 0)
    end = np.where(g[moves] > 0, 1.0, lowest)
    wait[moves] = np.maximum(0.0, (end - charge[moves]) / g[moves])
    return wait


def _settle(
    loss: Restrictable,
    p: Vector,
    tolerance: float,
    finest: float,
    rtol: float,
    atol: float,
    curvature: Restrictable,
) -> Vector:
    """Follow d log|p_i| / dt = 2 sign(p_i) g_i on the support of p to rest.

    Newton's method goes the last part of the way, where it is short, to |g| = `finest`. Coordinates
    that fade become zero.
    """
    support = np.flatnonzero(p)
    on = torch.from_numpy(support)
    every = torch.arange(len(support))
    here = loss.restricted(on)
    bent = curvature.restricted(on)
    sign = np.sign(p[support])

    def products(x: Vector) -> Vector:
        return sign * np.exp(np.minimum(x, OVERFLOW))

    def place(x: np.ndarray) -> Vector:
        q = np.zeros_like(p)
        q[support] = products(x)
        return q

    def velocity(x: Vector) -> Vector:
        return 2 * sign * gradient(here, products(x))

    numbers = (tolerance, finest, rtol, atol, curvature)
    reached = [np.log(np.abs(p[support]))]

    def jacobian(_: Vector) -> Float[np.ndarray, "p p"]:
        q = products(reached[0])
        return -2 * sign[:, None] * bent.hessian(torch.from_numpy(q), every).numpy() * q

    flow = stiff_flow(velocity, jacobian, reached[0], math.inf, rtol=rtol, atol=atol, method="BDF")
    next_look = 0
    for number, step in enumerate(itertools.islice(flow, MAX_STEPS)):
        x = reached[0] = step.state
        if not x.max() < OVERFLOW:
            raise StalledError(f"a stage with {len(support)} coordinates grows without bound")
        speed = step.mean_velocity
        fading = (x < math.log(GONE)) & (speed < 0)
        if fading.any():
            q = place(x)
            q[support[fading]] = 0.0
            return q if fading.all() else _settle(loss, q, *numbers)
        rest = 2 * tolerance
        fastest = np.abs(speed).max()
        if fastest < SLOW * rest and number >= next_look:
            next_look = number + LOOK_EVERY
            found = rest_nearby(loss, place(x), tolerance, 0.0, NEARBY, finest)
            if found is not None:
                return found
        if fastest < NEAR * rest and np.abs(velocity(x)).max() < rest:
            return place(x)
    raise StalledError(
        f"a stage with {len(support)} coordinates did not come to rest in {MAX_STEPS} steps"
    )


def stability_limit(H: Float[np.ndarray, "k k"], p: Float[np.ndarray, " k"]) -> float:
    r"""The largest stable learning rate: $2 / \lambda_{\max}$ of the Hessian in (u, v).

    At a stationary point with c = 0 its spectrum is that of $\sqrt{2|p|}\, H \sqrt{2|p|}$ (and
    zeros); infinite where nothing is curved upwards, as with an empty support.
    """
    if not len(p):
        return math.inf
    root = np.sqrt(2 * np.abs(p))
    sharpest = float(np.linalg.eigvalsh(root[:, None] * H * root)[-1])
    return 2 / sharpest if sharpest > 0 else math.inf


def strong_minimum(H: Float[np.ndarray, "k k"], p: Float[np.ndarray, " k"]) -> tuple[float, float]:
    r"""How strict a minimum on its support a plateau is, in products and in weights.

    Assumption 4.3 wants both positive.
    The least eigenvalue of H, and the paper's constant, $2 \lambda_{\min}(\sqrt{|p|}\, H
    \sqrt{|p|})$, for the loss as a function of $u = |p|^{1/2}$; infinite for an empty support.
    """
    if not len(p):
        return math.inf, math.inf
    root = np.sqrt(np.abs(p))
    in_weights = 2 * np.linalg.eigvalsh(root[:, None] * H * root)[0]
    return float(np.linalg.eigvalsh(H)[0]), float(in_weights)
