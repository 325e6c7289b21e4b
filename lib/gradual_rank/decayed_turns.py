r"""Flows of normalised heads far behind their turn, and under weight decay.

Weight decay λ has $\dot W = -\partial L / \partial W - \lambda W$. Where the loss is of degree zero
in W_K and in W_Q, as it is with QK-norm, $|W_K|$ and $|W_Q|$ are those of the start times
$e^{-\lambda t}$; docs/qk_norm.md has the proofs.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.integrate import cumulative_trapezoid

from lib.gradual_rank.normalized_heads import Each, Heads, Weights, norm

Vector = Float[np.ndarray, " _"]


@dataclass(frozen=True, kw_only=True)
class DecayedHeads(Heads):
    """Heads with a weight decay of W_K and W_Q, and one of W_V and W_O; gains do not decay."""

    keys: Each
    values: Each

    @property
    def decays(self) -> Float[np.ndarray, "matrix head 1 1"]:
        """The decay of each matrix."""
        return np.stack([self.keys, self.keys, self.values, self.values])[:, :, None, None]

    def only(self, index: Int[np.ndarray, " kept"]) -> "DecayedHeads":
        """Some of the heads."""
        return replace(
            self,
            X=self.X[index],
            Y=self.Y[index],
            keys=self.keys[index],
            values=self.values[index],
        )

    def velocity(self, W: Weights) -> Weights:
        """How fast the flow moves the weights; where it is stiff, keys alone are slowed.

        A gain rests no faster than values do.
        """
        _, slopes = self.loss_and_slopes(W)
        factors = slopes.factors.copy()
        if self.normalized:
            factors[:2] *= np.minimum(1, self.stiffness / self.ratio(W))[:, None, None]
        return Weights(factors - self.decays * W.factors, slopes.gain)

    def ratio(self, W: Weights) -> Each:
        r"""The ratio ρ of `Heads` times $\gamma / \sqrt d$, as the gain sets how fast keys move."""
        return super().ratio(W) * np.abs(W.gain) / math.sqrt(W.factors.shape[-1])

    def kept(self, moved: Weights, before: Weights, steps: Each) -> Weights:
        r"""The weights after a step, with the norms of W_K and W_Q that the flow has there.

        With QK-norm these are those before it times $e^{-\lambda t}$. Steps alone would let norms
        grow where keys rest that are stiff. Plain heads keep no norm, and stay as they are.
        """
        if not self.normalized:
            return moved
        factors = moved.factors.copy()
        wanted = norm(before.factors[:2]) * np.exp(-self.keys * steps)
        factors[:2] *= (wanted / norm(factors[:2]))[:, :, None, None]
        return Weights(factors, moved.gain)


def earlier_turn(times: Vector, pulls: Vector, turn: float, decay: float) -> float:
    r"""When keys turn that decay alone, as the flow without decay says it.

    Keys turn as $\int |W_{VO}| dt$ grows, at a speed that is $e^{2 \lambda t}$ times as large where
    both norms are $e^{-\lambda t}$ times as large. So they turn at the T of
    $\int_0^T e^{2 \lambda t} |W_{VO}| dt = \int_0^{T_0} |W_{VO}| dt$, with $|W_{VO}|$ (`pulls`)
    and the `turn` $T_0$ of the flow without decay. Values are taken to grow as they do without it.
    """
    plain = cumulative_trapezoid(pulls, times, initial=0)
    faster = cumulative_trapezoid(pulls * np.exp(2 * decay * times), times, initial=0)
    return float(np.interp(np.interp(turn, times, plain), faster, times))
