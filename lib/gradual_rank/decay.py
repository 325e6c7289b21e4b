r"""Weight decay on diagonal networks from small starts: flow, first rise, and where it rests.

The loss is $L(p) + \frac\lambda2 (\|u\|^2 + \|v\|^2)$ with $p = u \odot v$
and $g = -\partial L / \partial p$, and $w_\pm = |u \pm v|$ obey $\dot w_\pm = (\pm g - \lambda)
w_\pm$. The halves $q_\pm = w_\pm^2 / 4$ of $p = q_+ - q_-$ are products that are never negative,
under the loss $L(q_+ - q_-) + \lambda \sum (q_+ + q_-)$ without decay: with its own g,

    d log q / dt = 2 g(q),   g(q) = (g(p) − λ, −g(p) − λ).

So `greedy` of the halves is Algorithm 1 with decay: each half has a charge of its own, which joins
at 1 and has no lower end. The end point is stationary for $L + \lambda \|p\|_1$; for matrices see
`decayed_matrices`. This is ours, not the paper's; the proofs are in docs/gradual_rank.md.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lib.gradual_rank.diagonal_heads import DiagonalLoss, Products
from lib.gradual_rank.greedy import Stage
from lib.training.stiff_flow import Loss, Step, Vector, crossing_of, gradient, stiff_flow

OVERFLOW = math.log(1e6)  # the largest log q in trial steps of the implicit solver
PRESENT = 1e-6  # |p| from which a product is there at rest


class Decayed(DiagonalLoss):
    r"""The loss $L(q_+ - q_-) + \lambda \sum (q_+ + q_-)$ of the halves $q = (q_+, q_-)$."""

    def __init__(self, loss: DiagonalLoss, decay: float):
        self.loss = loss
        self.decay = decay
        self.size = 2 * loss.size

    def value(self, p: Products) -> Float[Tensor, "*batch"]:
        """L of the products, and the decay."""
        return self.loss.value(whole(p)) + self.decay * p.sum(-1)

    def gradient(self, p: Products) -> Products:
        r"""$(g - \lambda, -g - \lambda)$."""
        g = self.loss.gradient(whole(p))
        return torch.cat([g, -g], -1) - self.decay

    def hessian(self, p: Float[Tensor, " p"], support: Int[Tensor, " k"]) -> Float[Tensor, "p k"]:
        """Columns of [[H, −H], [−H, H]]."""
        n = self.loss.size
        columns = self.loss.hessian(whole(p), support % n)
        signed = torch.where(support < n, columns, -columns)
        return torch.cat([signed, -signed])

    def restricted(self, support: Int[Tensor, " k"]) -> DiagonalLoss:
        """The loss of the halves in the support (in rising order), the others zero.

        It costs the columns of the products of these halves alone.
        """
        products, places = torch.unique(support % self.loss.size, return_inverse=True)
        fewer = Decayed(self.loss.restricted(products), self.decay)
        return DiagonalLoss.restricted(fewer, places + len(products) * (support >= self.loss.size))


def whole(q: Float[Tensor, "*batch half"]) -> Products:
    """The products of halves."""
    plus, minus = q.chunk(2, -1)
    return plus - minus


def products(q: Float[np.ndarray, " half"]) -> Float[np.ndarray, " p"]:
    """The products of halves, as `whole`, of arrays."""
    return whole(torch.from_numpy(q)).numpy()


def log_halves(u: Vector, v: Vector, log_scale: float) -> Float[np.ndarray, " half"]:
    """The logarithms of the halves of e^log_scale (u, v)."""
    return 2 * (np.log(np.abs(np.concatenate([u + v, u - v])) / 2) + log_scale)


def halves_flow(
    loss: Loss,
    start: Vector,
    end: float,
    *,
    rtol: float,
    atol: float,
    curvature: Loss | None = None,
) -> Iterator[Step]:
    """Yield the flow of log q to the end, a step of the implicit solver at a time.

    Where it rests what is learned is still, and the rest moves on straight lines: BDF, whose steps
    then grow without bound.
    """
    bent = loss if curvature is None else curvature
    n = len(start)
    reached = [start]

    def velocity(x: Vector) -> Vector:
        return 2 * gradient(loss, halves(x))

    def jacobian(_: Vector) -> Float[np.ndarray, "half half"]:
        q = halves(reached[0])
        found = np.zeros((n, n))
        there = np.flatnonzero(q > PRESENT)
        if len(there):
            H = bent.hessian(torch.from_numpy(q), torch.from_numpy(there)).numpy()
            found[:, there] = -2 * H * q[there]
        return found

    for step in stiff_flow(velocity, jacobian, start, end, rtol=rtol, atol=atol, method="BDF"):
        yield step
        reached[0] = step.state


def halves(x: Vector) -> Vector:
    """q from its logarithm, cut where it would overflow."""
    return np.exp(np.minimum(x, OVERFLOW))


def first_rises(steps: Iterable[Step], threshold: float, n: int) -> Vector:
    """When each of n halves first comes to the threshold; infinite if it never does."""
    level = math.log(threshold)
    found = np.full(n, np.inf)
    for step in steps:
        for i in np.flatnonzero((step.state >= level) & np.isinf(found)):
            found[i] = crossing_of(step, int(i), level)
    return found


def first_rise(g: Vector, start: Vector, threshold: float) -> float:
    r"""When the first half comes to the threshold θ if g(q) stays that of the start.

    $\min_i \log(\theta / q_i(0)) / 2 g_i$ over g > 0; infinite where there is none.
    """
    rising = g > 0
    waits = (math.log(threshold) - start[rising]) / (2 * g[rising])
    return float(waits.min(initial=np.inf))


def rest_error(g: Vector, p: Vector, decay: float) -> float:
    r"""How far a point is from rest under $L + \lambda \|p\|_1$, as a share of λ.

    $\max |g_i - \lambda\,\mathrm{sign}\, p_i|$ over what is there, and $\max (|g_i| - \lambda)$.
    """
    there = np.abs(p) > PRESENT
    on = np.abs(g - decay * np.sign(p))[there].max(initial=0.0)
    return float(max(on, np.abs(g).max() - decay) / decay)


def ridge_error(g: Vector, p: Vector, decay: float) -> float:
    r"""How far a point is from rest under decay of the products themselves, as a share of λ.

    Under $L + \frac\lambda2 \|p\|^2$ it is $\max |g_i - \lambda p_i|$.
    """
    return float(np.abs(g - decay * p).max() / decay)


def at_rest(halved: Decayed, p: Vector, threshold: float) -> dict[str, float]:
    """How many products are above the threshold, and the errors of rest; NaN without decay."""
    errors = {"rest_error": math.nan, "ridge_error": math.nan}
    if halved.decay > 0:
        g = gradient(halved.loss, p)
        errors["rest_error"] = rest_error(g, p, halved.decay)
        errors["ridge_error"] = ridge_error(g, p, halved.decay)
    return {"rank": int((np.abs(p) > threshold).sum()), **errors}


def rises_beside(stages: Sequence[Stage], measured: Vector) -> pd.DataFrame:
    """When each half is `measured` to rise, when it first joins in the stages of Algorithm 1
    (`predicted`; infinite where never), and its largest plateau there.
    """
    n = len(measured) // 2
    joins = np.full(2 * n, np.inf)
    for stage in reversed(stages[1:]):
        joins[stage.coordinate] = stage.time
    heights = np.max([stage.p for stage in stages], axis=0)
    half = {"coordinate": np.tile(np.arange(n), 2), "sign": np.repeat([1, -1], n)}
    return pd.DataFrame(half | {"measured": measured, "predicted": joins, "height": heights})
