r"""Optimisers as update rules: what a step of rate one adds to each of the weights.

A rule takes $G = -\nabla L$ of every weight by name and returns the step of each; a rule that
remembers is an object made for one training. None has weight decay. Batch axes come first and are
trainings side by side. In units of τ, the sum of the rates, the flow of `signs` moves every entry
by one, the flow of `polar_factors` moves every singular value by one, and the flow of `normalized`
moves the Frobenius norm by one: none of them knows how long the gradient is. The flow of `slopes`
is gradient flow, whose time is τ.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lib.training.gradient_descent import Weights, descent
from lib.training.sgd import MOMENTUM, newton_schulz

Rule = Callable[[Weights], Weights]


class Step(NamedTuple):
    """Where a descent stands after `number` steps: τ, the weights, and the loss there."""

    number: int
    time: float
    weights: Weights
    loss: Tensor


def descend(
    loss_and_slopes: Callable[[Weights], tuple[Any, Weights]],
    start: Weights,
    rule: Rule,
    rates: Sequence[float],
) -> Iterator[Step]:
    r"""Yield the start, and the state after every step $W \leftarrow W + \eta_t\,\mathrm{rule}(G)$.

    No tensor of a state is changed later.
    """

    def moved(number: int, weights: Weights, G: Weights) -> Weights:
        return {name: weights[name] + rates[number] * step for name, step in rule(G).items()}

    weights, time = start, 0.0
    for rate, step in zip(rates, descent(loss_and_slopes, start, moved), strict=False):
        yield Step(step.number, time, step.weights, step.loss)
        weights = step.after
        time += rate
    yield Step(len(rates), time, weights, loss_and_slopes(weights)[0])


def descended(steps: Iterable[Step], share: float) -> tuple[Weights, Bool[Tensor, "*batch"]]:
    """The weights when each loss has fallen to this share of its first value, and which losses did.

    A loss that did not has the last weights. All weights are [..., *batch, row, col].
    """
    first = None
    end: Weights = {}
    reached = torch.tensor(False)
    for step in steps:
        first = step.loss if first is None else first
        there = reached[..., None, None]
        end = {name: torch.where(there, end.get(name, w), w) for name, w in step.weights.items()}
        reached = reached | (step.loss <= share * first)
        if reached.all():
            break
    return end, reached


def annealed(rate: float, n_steps: int, share: float) -> list[float]:
    """The rates of `n_steps` steps: constant, then falling linearly to zero over the last share."""
    falling = round(share * n_steps)
    return [rate * min(1.0, (n_steps - k) / (falling + 1)) for k in range(n_steps)]


def slopes(G: Weights) -> Weights:
    """The step of gradient descent: G itself."""
    return G


def normalized(G: Weights) -> Weights:
    r"""The step $G / \|G\|_F$ of each matrix, which is zero for zero."""
    norms = {name: torch.linalg.matrix_norm(g, keepdim=True) for name, g in G.items()}
    return {name: g / torch.where(norms[name] > 0, norms[name], 1.0) for name, g in G.items()}


def signs(G: Weights) -> Weights:
    r"""The step $\mathrm{sign}(G)$, entry by entry."""
    return {name: g.sign() for name, g in G.items()}


def polar_factors(G: Weights) -> Weights:
    r"""The step $U V^\top$ of $G = U \Sigma V^\top$: Muon's orthogonalised one without momentum."""
    U, _, Vh = torch.linalg.svd(torch.stack(list(G.values())), full_matrices=False)
    return dict(zip(G, U @ Vh, strict=True))


@dataclass
class Adam:
    r"""The step $\hat m / (\sqrt{\hat v} + \epsilon)$ of Kingma & Ba (2015)."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    eps: float = 1e-8
    step: int = 0
    m: Weights = field(default_factory=dict)
    v: Weights = field(default_factory=dict)

    def __call__(self, G: Weights) -> Weights:
        """The step, after G has joined both means."""
        self.step += 1
        self.m = _means(self.m, G, self.beta_1)
        self.v = _means(self.v, _squares(G), self.beta_2)
        of_m = 1 - self.beta_1**self.step  # corrects the bias of a mean over few steps
        of_v = 1 - self.beta_2**self.step
        return {
            name: m / of_m / ((self.v[name] / of_v).sqrt() + self.eps) for name, m in self.m.items()
        }


@dataclass
class RMSProp:
    r"""The step $G / (\sqrt v + \epsilon)$ of torch.optim.RMSprop; the bias of the mean v stays."""

    alpha: float = 0.99
    eps: float = 1e-8
    v: Weights = field(default_factory=dict)

    def __call__(self, G: Weights) -> Weights:
        """The step, after G has joined the mean."""
        self.v = _means(self.v, _squares(G), self.alpha)
        return {name: g / (self.v[name].sqrt() + self.eps) for name, g in G.items()}


@dataclass
class TorchMuon:
    """The step of torch.optim.Muon: Newton–Schulz steps in bfloat16 on a Nesterov mean of G.

    They leave singular values of .7 to 1.2 where the polar factor has ones. All matrices have one
    shape.
    """

    momentum: float = MOMENTUM
    m: Weights = field(default_factory=dict)

    def __call__(self, G: Weights) -> Weights:
        """The step, after G has joined the mean."""
        self.m = _means(self.m, G, self.momentum)
        looked_ahead = [g.lerp(self.m[name], self.momentum) for name, g in G.items()]
        steps = newton_schulz(torch.stack(looked_ahead), bfloat16=True)
        return dict(zip(G, steps, strict=True))


def _means(before: Weights, G: Weights, beta: float) -> Weights:
    """The exponential means once G has joined them; the first time they start from zero."""
    if not before:
        return {name: g * (1 - beta) for name, g in G.items()}
    return {name: before[name].lerp(g, 1 - beta) for name, g in G.items()}


def _squares(G: Weights) -> Weights:
    return {name: g.square() for name, g in G.items()}


RULES: dict[str, Callable[[], Rule]] = {
    "slopes": lambda: slopes,
    "normalized": lambda: normalized,
    "signs": lambda: signs,
    "polar_factors": lambda: polar_factors,
    "adam": Adam,
    "rmsprop": RMSProp,
    "torch_muon": TorchMuon,
}


class DiagonalStep(NamedTuple):
    """Where a descent stands after `number` steps: τ, u, v, and g = -∂L/∂p at p = u ⊙ v."""

    number: int
    time: float
    u: Tensor
    v: Tensor
    g: Tensor

    @property
    def p(self) -> Tensor:
        """The products."""
        return self.u * self.v


def descend_diagonal(
    gradient: Callable[[Tensor], Tensor], u: Tensor, v: Tensor, rule: Rule, rates: Sequence[float]
) -> Iterator[DiagonalStep]:
    """Yield the start of a descent of diagonal weights, and the state after every step."""

    def g_and_slopes(W: Weights) -> tuple[Tensor, Weights]:
        g = gradient(W["u"] * W["v"])
        return g, {"u": W["v"] * g, "v": W["u"] * g}

    for step in descend(g_and_slopes, {"u": u, "v": v}, rule, rates):
        yield DiagonalStep(step.number, step.time, **step.weights, g=step.loss)


def descend_roots(
    gradient: Callable[[Tensor], Tensor], q: Tensor, rates: Sequence[float]
) -> Iterator[Float[Tensor, "*batch p"]]:
    """Yield the products p = q |q| of signed roots q under steps of the signs of g(p)."""

    def p_and_g(W: Weights) -> tuple[Tensor, Weights]:
        p = W["q"] * W["q"].abs()
        return p, {"q": gradient(p)}

    return (step.loss for step in descend(p_and_g, {"q": q}, signs, rates))


def path_of(
    steps: Sequence[DiagonalStep],
) -> tuple[Float[np.ndarray, " step"], Float[np.ndarray, "*batch step p"]]:
    """The times of a descent, and the products there."""
    return np.array([step.time for step in steps]), np.stack([step.p.numpy() for step in steps], -2)


def root_speed(steps: Iterable[DiagonalStep], begin: int, end: int) -> Float[Tensor, "*batch p"]:
    r"""How fast $\sqrt{|p|}$ grows per τ between the steps `begin` and `end`."""
    (t_0, r_0), (t_1, r_1) = (
        (step.time, step.p.abs().sqrt()) for step in steps if step.number in (begin, end)
    )
    return (r_1 - r_0) / (t_1 - t_0)


def first_rise(steps: Iterable[DiagonalStep], threshold: float) -> Float[Tensor, "*batch"]:
    """When some |p| of each network first exceeds the threshold; infinite if none does."""
    risen = torch.tensor(torch.inf, dtype=torch.float64)
    for step in steps:
        now = (step.p.abs() > threshold).any(-1)
        risen = torch.where(now & risen.isinf(), step.time, risen)
        if risen.isfinite().all():
            break
    return risen


def until_changed(
    steps: Iterable[DiagonalStep], s: Float[Tensor, "*batch p"]
) -> Iterator[DiagonalStep]:
    """Yield a descent until, in each network, some g has changed from the sign s to the other."""
    changed = torch.tensor(False)
    had = torch.zeros_like(s, dtype=torch.bool)
    for step in steps:
        yield step
        along = s * step.g
        changed = changed | (had & (along < 0)).any(-1)
        if changed.all():
            return
        had = along > 0


def until_fallen(
    steps: Iterable[DiagonalStep], value: Callable[[Tensor], Tensor], share: float, every: int
) -> Iterator[DiagonalStep]:
    """Yield a descent until the loss of every network is at most a share of the loss at zero.

    `value(p)` gives the losses; they are looked at every so many steps.
    """
    bar = None
    for step in steps:
        yield step
        bar = share * value(torch.zeros_like(step.u)) if bar is None else bar
        if step.number % every == 0 and (value(step.p) <= bar).all():
            return


def warmed_up(first: float, growth: float, rate: float, time: float) -> list[float]:
    """Rates that grow by a factor a step from the first up to `rate`, until their sum is `time`."""
    found: list[float] = []
    total = 0.0
    while total < time:
        found.append(min(rate, first * growth ** len(found) if first < rate else rate))
        total += found[-1]
    return found
