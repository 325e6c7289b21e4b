r"""Heads under weight decay, and when their keys turn.

Weight decay λ has $\dot W = -\partial L / \partial W - \lambda W$. With QK-norm the loss is of
degree zero in W_K and in W_Q, so that $|W_K|$ and $|W_Q|$ fall as $e^{-\lambda t}$ whatever is
learned; docs/qk_norm.md has the proofs.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.integrate import cumulative_trapezoid

from lib.gradual_rank.limit_flows import limit_courses
from lib.gradual_rank.normalized_heads import Each, Heads, Weights, norm

Vector = Float[np.ndarray, " _"]


@dataclass(frozen=True, kw_only=True)
class DecayedHeads(Heads):
    """Heads whose matrices decay; their gains do not."""

    keys: Each  # the weight decay of W_K and of W_Q
    values: Each  # that of W_V and of W_O

    @property
    def decays(self) -> Float[np.ndarray, "matrix head 1 1"]:
        """The weight decay of each of the four matrices."""
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
        """How fast the flow moves the weights; where it is stiff, W_K and W_Q alone are slowed.

        Unlike in `Heads`, a gain is not slowed: it comes to rest no faster than values do.
        """
        _, slopes = self.loss_and_slopes(W)
        factors = slopes.factors.copy()
        if self.normalized:
            factors[:2] *= np.minimum(1, self.stiffness / self.ratio(W))[:, None, None]
        return Weights(factors - self.decays * W.factors, slopes.gain)

    def ratio(self, W: Weights) -> Each:
        r"""The ratio ρ of `Heads` times $|\gamma| / \sqrt d$: the speed of keys is proportional to
        the gain γ.
        """
        return super().ratio(W) * np.abs(W.gain) / math.sqrt(W.factors.shape[-1])

    def kept(self, moved: Weights, before: Weights, steps: Each) -> Weights:
        r"""The weights after a step of length t, with the norms of W_K and W_Q that the flow has.

        With QK-norm the flow multiplies both norms by $e^{-\lambda t}$. Steps alone would make them
        grow where keys are stiff and at rest. The flow of plain heads keeps no norm, and their
        weights are those of the step.
        """
        if not self.normalized:
            return moved
        factors = moved.factors.copy()
        wanted = norm(before.factors[:2]) * np.exp(-self.keys * steps)
        factors[:2] *= (wanted / norm(factors[:2]))[:, :, None, None]
        return Weights(factors, moved.gain)


def earlier_turn(times: Vector, pulls: Vector, turn: float, decay: float) -> float:
    r"""When keys turn if they alone decay, by the flow without decay: an approximation.

    Keys turn as $\int |W_{VO}| dt$ grows, and $e^{2 \lambda t}$ times as fast where both of their
    norms have fallen by $e^{-\lambda t}$. So they turn at the T of
    $\int_0^T e^{2 \lambda t} |W_{VO}| dt = \int_0^{T_0} |W_{VO}| dt$, with the `turn` $T_0$ and the
    $|W_{VO}|$ (`pulls`) of the flow without decay at its `times`. W_VO is taken to keep its
    direction, and to grow as it does without decay; in truth it grows faster once keys have turned.

    Where values decay, too, λ is the `decay` of keys less that of values. If it is negative the
    turn comes later; one that comes after the last of the `times` is not seen, and that last time
    stands for it.
    """
    plain = cumulative_trapezoid(pulls, times, initial=0)
    faster = cumulative_trapezoid(pulls * np.exp(2 * decay * times), times, initial=0)
    return float(np.interp(np.interp(turn, times, plain), faster, times))


def turns_and_rates(
    heads: DecayedHeads,
    start: Weights,
    longest: float,
    turned: float,
    begin: float,
    end: float,
) -> dict[str, list[float]]:
    """What the limit of small weights says of every head: its turn and how fast its values grow.

    The limit is followed without decay; `turn_undecayed` is its turn, and `turn` that with decay,
    by `earlier_turn`. `growth` is the rate of W_VO, less its decay, while its first singular value
    goes from `begin` to `end`.
    """
    zero = np.zeros(len(start.gain))
    linear = replace(heads, linear=True, learned=False, keys=zero, values=zero)
    found: dict[str, list[float]] = {"turn": [], "turn_undecayed": [], "growth": []}
    courses = limit_courses(linear, start, longest, turned, end, heads.values)
    for course, keys, values in zip(courses, heads.keys, heads.values, strict=True):
        turn = course.turn(turned)
        found["turn_undecayed"].append(turn)
        found["turn"].append(earlier_turn(course.times, course.pull, turn, keys - values))
        found["growth"].append(course.rate(begin, end, values))
    return found
