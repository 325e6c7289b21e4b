r"""Full-batch gradient descent on networks with diagonal weights, in three arithmetics.

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

from lib.files.files import InputError
from lib.training.gradient_descent import Weights as Named
from lib.training.gradient_descent import descent

Form = Literal["plain", "factors", "exponential"]
Weights = Float[Tensor, "*batch p"]

# What a step makes of the two weights of each pair; `move` is η g.
STEPS: dict[Form, Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "plain": lambda u, v, move: (torch.addcmul(u, move, v), torch.addcmul(v, move, u)),
    "factors": lambda plus, minus, move: (plus * (1 + move), minus * (1 - move)),
    "exponential": lambda plus, minus, move: (plus * move.exp(), minus * (-move).exp()),
}


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
    """Yield the start and then the state after every step, without end.

    Batch axes are descents side by side.
    """

    def products_and_g(W: Named) -> tuple[Tensor, Named]:
        first, second = W["first"], W["second"]
        p = first * second if form == "plain" else (first.square() - second.square()) / 4
        return p, {"g": gradient(p)}

    def moved(_: int, W: Named, G: Named) -> Named:
        move = learning_rate * G["g"]
        first, second = STEPS[form](W["first"], W["second"], move)
        return {"first": first, "second": second, "charge": W["charge"] + move}

    start = {"first": u, "second": v} if form == "plain" else {"first": u + v, "second": u - v}
    start["charge"] = ((u + v).abs().log() - (u - v).abs().log()) / 2
    for step in descent(products_and_g, start, moved):
        yield State(step.number, p=step.loss, **step.weights)


def while_finite(states: Iterable[State], what: str) -> Iterator[State]:
    """The states; raises `InputError` at one that overflows."""
    for state in states:
        if not bool(state.p.isfinite().all()):
            raise InputError(
                f"{what}: wanted a learning rate at which descent stays finite, got overflow at "
                f"step {state.step}"
            )
        yield state


def with_crossings(
    states: Iterable[State], threshold: float
) -> Iterator[tuple[State, Bool[Tensor, "*batch p"], Bool[Tensor, "*batch p"]]]:
    """Yield each state with which |p| are above the threshold, and which have just crossed it.

    A product rises to the threshold and falls below half of it, so that what lingers there is
    counted once. None is above before the start.
    """
    above: Tensor | None = None
    for state in states:
        before = torch.zeros(state.p.shape, dtype=torch.bool) if above is None else above
        above = state.p.abs() >= torch.where(before, threshold / 2, threshold)
        yield state, above, above != before


def crossings(
    state: State, above: Bool[Tensor, "*batch p"], changed: Bool[Tensor, "*batch p"]
) -> Iterator[tuple[list[int], dict[str, int | bool]]]:
    """The crossings of a state of `with_crossings`, each with its place on the batch axes: the
    coordinate, the sign of its product, and whether it rises; else it falls.
    """
    for *place, i in changed.nonzero().tolist():
        at = (*place, i)
        sign = int(torch.sign(state.p[at]))
        yield place, {"coordinate": i, "sign": sign, "rises": bool(above[at])}


def drift(state: State, form: Form, u: Weights, v: Weights) -> Float[Tensor, "*batch"]:
    """The largest change of log|u² − v²| since the start; infinite where |u| = |v|.

    The flow keeps it (Lemma 4.1).
    """
    plus, minus = state.first, state.second
    if form == "plain":
        plus, minus = state.first + state.second, state.first - state.second
    log_c = (u + v).abs().log() + (u - v).abs().log()
    return (plus.abs().log() + minus.abs().log() - log_c).abs().amax(-1)


def lost(state: State) -> Bool[Tensor, "*batch p"]:
    r"""Coordinates of a plain descent that rounding holds where they are: |u| = |v| to the bit.

    With machine epsilon ε (2⁻⁵² in float64), (u, v) can tell $|y| < \frac12 \log(2 / \epsilon)$
    apart, and less after the rounding of many steps: 2 are taken off. A coordinate that has been
    further out, and whose exact y has come back inside (or is on the other side by now), should
    have moved again and cannot: from here on the descent may take a wrong path.
    """
    reach = math.log(2 / torch.finfo(state.first.dtype).eps) / 2 - 2
    side = state.first.sign() * state.second.sign()
    return (state.first.abs() == state.second.abs()) & (side * state.charge < reach)
