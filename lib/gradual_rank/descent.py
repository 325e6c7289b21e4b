r"""Full-batch gradient descent on networks with diagonal weights, in three arithmetics of the same
flow.

`plain` takes steps in (u, v), as any training loop does: $u \leftarrow u + \eta v g$, $v \leftarrow
v + \eta u g$. Then $w_\pm = u \pm v$ are multiplied by $1 \pm \eta g$, and `factors` does just
that, on $w_\pm$ themselves. Both are the same in exact arithmetic. In floating point a coordinate
that has drifted by $|y| > \frac12 \log(1/\epsilon)$ has |u| = |v| to the bit, which `plain` can
never leave again, where `factors` can. `exponential` multiplies by $e^{\pm \eta g}$: Euler's method
in y, free of the bias $-\eta g / 2$ of the rate. p = u ⊙ v = (w₊² - w₋²)/4.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Form = Literal["plain", "factors", "exponential"]
Weights = Float[Tensor, "*batch p"]


@dataclass
class State:
    r"""Where a descent stands: (u, v) in the plain form, (w₊, w₋) in the others, and the products.

    `charge` is $y_0 + \eta \sum g$ with $y_0 = \frac12 \log|w_+ / w_-|$ of the start: where y would
    be if the arithmetic were exact and the learning rate small.
    """

    step: int
    first: Weights
    second: Weights
    p: Weights
    charge: Weights


def descend(
    gradient: Callable[[Tensor], Tensor],
    u: Weights,
    v: Weights,
    learning_rate: float | Float[Tensor, "*batch 1"],
    form: Form,
) -> Iterator[State]:
    """Yield the start and then the state after every step, without end; batch axes are descents
    side by side.
    """
    charge = ((u + v).abs().log() - (u - v).abs().log()) / 2
    first, second = (u.clone(), v.clone()) if form == "plain" else (u + v, u - v)
    step = 0
    while True:
        p = first * second if form == "plain" else (first.square() - second.square()) / 4
        yield State(step, first, second, p, charge)
        move = learning_rate * gradient(p)
        if form == "plain":
            first, second = torch.addcmul(first, move, second), torch.addcmul(second, move, first)
        elif form == "factors":
            first = first * (1 + move)
            second = second * (1 - move)
        else:
            first = first * move.exp()
            second = second * (-move).exp()
        charge = charge + move
        step += 1


def with_crossings(
    states: Iterable[State], threshold: float
) -> Iterator[tuple[State, Bool[Tensor, "*batch p"], Bool[Tensor, "*batch p"]]]:
    """Yield each state with which |p| are above, and for which that has changed: one rises to the
    threshold, or falls below half of it, so that what lingers there is counted once. None is above
    before the start.
    """
    above: Tensor | None = None
    for state in states:
        before = torch.zeros(state.p.shape, dtype=torch.bool) if above is None else above
        above = state.p.abs() >= torch.where(before, threshold / 2, threshold)
        yield state, above, above != before


def drift(state: State, form: Form, u: Weights, v: Weights) -> Float[Tensor, "*batch"]:
    """The largest change of log|u² − v²| since the start (Lemma 4.1: none in the flow); infinite
    where |u| = |v|.
    """
    first = state.first
    second = state.second
    plus, minus = (first + second, first - second) if form == "plain" else (first, second)
    log_c = (u + v).abs().log() + (u - v).abs().log()
    return (plus.abs().log() + minus.abs().log() - log_c).abs().amax(-1)


def lost(state: State) -> Bool[Tensor, "*batch p"]:
    r"""Coordinates of a plain descent that rounding holds where they are: |u| = |v| to the bit, y
    not far out there.

    With machine epsilon ε (2⁻⁵² in float64), (u, v) can tell $|y| < \frac12 \log(2 / \epsilon)$
    apart, and less after the rounding of many steps: 2 are taken off. A coordinate that has been
    further out, and whose exact y has come back inside (or is on the other side by now), should
    have moved again and cannot: from here on the descent may take a wrong path.
    """
    reach = math.log(2 / torch.finfo(state.first.dtype).eps) / 2 - 2
    side = state.first.sign() * state.second.sign()
    return (state.first.abs() == state.second.abs()) & (side * state.charge < reach)
