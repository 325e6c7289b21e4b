r"""Optimisers as update rules, without weight decay: what a step of rate one adds to each of the
weights.

A rule takes $G = -\nabla L$ of every weight by its name and gives the step of each; one that
remembers is an object, made for one training. Batch axes come first and are trainings side by side.
In units of τ, the sum of the rates, the flow of `signs` moves every entry by one, that of
`polar_factors` every singular value, and that of `normalized` the Frobenius norm: none knows how
long the gradient is. That of `slopes` is gradient flow, whose time is τ.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

Weights = dict[str, Tensor]
Rule = Callable[[Weights], Weights]

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # a, b, c of torch.optim.Muon, five times
NEWTON_SCHULZ_STEPS = 5
NORM_EPS = 1e-7  # under the norm of what torch.optim.Muon orthogonalises


class Step(NamedTuple):
    """Where a descent stands after `number` steps: τ, the weights, and the loss there; no tensor is
    changed later.
    """

    number: int
    time: float
    weights: Weights
    loss: Tensor


def descend(
    loss_and_slopes: Callable[[Weights], tuple[Tensor, Weights]],
    start: Weights,
    rule: Rule,
    rates: Iterable[float],
) -> Iterator[Step]:
    r"""Yield the start and then the state after every step $W \leftarrow W +
    \eta_t\,\mathrm{rule}(G)$.
    """
    weights = dict(start)
    number = 0
    time = 0.0
    for rate in rates:
        loss, slopes_here = loss_and_slopes(weights)
        yield Step(number, time, weights, loss)
        weights = {name: weights[name] + rate * step for name, step in rule(slopes_here).items()}
        number = number + 1
        time = time + rate
    yield Step(number, time, weights, loss_and_slopes(weights)[0])


def descended(steps: Iterable[Step], share: float) -> tuple[Weights, Bool[Tensor, "*batch"]]:
    """The weights [..., *batch, row, col] at which each loss is at most that share of its first, or
    the last ones; and which of them came there.
    """
    first = None
    end = {}
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
    """Rates of so many steps: constant, and over the last share of them linear towards zero, which
    none is.
    """
    falling = round(share * n_steps)
    return [rate * min(1.0, (n_steps - k) / (falling + 1)) for k in range(n_steps)]


def slopes(G: Weights) -> Weights:
    """G itself: gradient descent."""
    return G


def normalized(G: Weights) -> Weights:
    r"""$G / \|G\|_F$ of each matrix; zero for zero."""
    norms = {name: torch.linalg.matrix_norm(g, keepdim=True) for name, g in G.items()}
    return {name: g / torch.where(norms[name] > 0, norms[name], 1.0) for name, g in G.items()}


def signs(G: Weights) -> Weights:
    r"""$\mathrm{sign}(G)$, entry by entry."""
    return {name: g.sign() for name, g in G.items()}


def polar_factors(G: Weights) -> Weights:
    r"""$U V^\top$ of $G = U \Sigma V^\top$: Muon's orthogonalised step, without momentum."""
    U, _, Vh = torch.linalg.svd(torch.stack(list(G.values())), full_matrices=False)
    return dict(zip(G, U @ Vh, strict=True))


@dataclass
class Adam:
    r"""$\hat m / (\sqrt{\hat v} + \epsilon)$ of Kingma & Ba (2015), means over time with bias
    correction.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    eps: float = 1e-8
    step: int = 0
    m: Weights = field(default_factory=dict)
    v: Weights = field(default_factory=dict)

    def __call__(self, G: Weights) -> Weights:
        """The step, after G has joined both means."""
        self.step += 1
        self.m = {name: _mean(self.m.get(name), g, self.beta_1) for name, g in G.items()}
        self.v = {name: _mean(self.v.get(name), g.square(), self.beta_2) for name, g in G.items()}
        of_m = 1 - self.beta_1**self.step
        of_v = 1 - self.beta_2**self.step
        return {
            name: m / of_m / ((self.v[name] / of_v).sqrt() + self.eps) for name, m in self.m.items()
        }


@dataclass
class RMSProp:
    r"""$G / (\sqrt v + \epsilon)$, v the mean of G² without bias correction, as torch.optim.RMSprop
    has it.
    """

    alpha: float = 0.99
    eps: float = 1e-8
    v: Weights = field(default_factory=dict)

    def __call__(self, G: Weights) -> Weights:
        """The step, after G has joined the mean."""
        self.v = {name: _mean(self.v.get(name), g.square(), self.alpha) for name, g in G.items()}
        return {name: g / (self.v[name].sqrt() + self.eps) for name, g in G.items()}


@dataclass
class TorchMuon:
    r"""torch.optim.Muon without weight decay: five Newton–Schulz steps in bfloat16 on a Nesterov
    mean of G.

    They leave singular values of .7 to 1.2 where the polar factor has ones. All matrices have one
    shape.
    """

    momentum: float = 0.95
    m: Weights = field(default_factory=dict)

    def __call__(self, G: Weights) -> Weights:
        """The step, after G has joined the mean."""
        self.m = {name: _mean(self.m.get(name), g, self.momentum) for name, g in G.items()}
        looked_ahead = [g.lerp(self.m[name], self.momentum) for name, g in G.items()]
        steps = newton_schulz(torch.stack(looked_ahead))
        return {name: step.to(g.dtype) for (name, g), step in zip(G.items(), steps, strict=True)}


def newton_schulz(G: Float[Tensor, "*batch row col"]) -> Tensor:
    r"""$X \leftarrow a X + (b X X^\top + c (X X^\top)^2) X$ from $G / \|G\|_F$, towards the polar
    factor, in bfloat16.

    Products are summed in float32 and rounded, as torch.optim.Muon has them on a CPU, so that any
    batch gives the same. Wide or square; a tall one is turned.
    """
    if G.shape[-2] > G.shape[-1]:
        return newton_schulz(G.mT).mT
    a, b, c = NEWTON_SCHULZ
    X = G.bfloat16()
    norm = X.float().square().sum((-2, -1), keepdim=True).sqrt().bfloat16()
    X = (X / norm.clamp(min=NORM_EPS)).float().reshape(-1, *G.shape[-2:])
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = _rounded(X @ X.mT)
        polynomial = _rounded(torch.baddbmm(gram, gram, gram, beta=b, alpha=c))
        X = _rounded(torch.baddbmm(X, polynomial, X, beta=a))
    return X.bfloat16().reshape(G.shape)


def _rounded(X: Tensor) -> Tensor:
    """The nearest numbers of bfloat16, in float32."""
    return X.bfloat16().float()


def _mean(before: Tensor | None, now: Tensor, beta: float) -> Tensor:
    return now * (1 - beta) if before is None else before.lerp(now, 1 - beta)


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
    """Where a descent of u and v stands: steps, τ, u, v, and g = -∂L/∂p at p = u ⊙ v."""

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
    gradient: Callable[[Tensor], Tensor], u: Tensor, v: Tensor, rule: Rule, rates: Iterable[float]
) -> Iterator[DiagonalStep]:
    """Yield the start of a network with diagonal weights and then the state after every step."""
    number = 0
    time = 0.0
    for rate in rates:
        g = gradient(u * v)
        yield DiagonalStep(number, time, u, v, g)
        step = rule({"u": v * g, "v": u * g})
        u = u + rate * step["u"]
        v = v + rate * step["v"]
        number = number + 1
        time = time + rate
    yield DiagonalStep(number, time, u, v, gradient(u * v))


def path_of(
    steps: Sequence[DiagonalStep],
) -> tuple[Float[np.ndarray, " step"], Float[np.ndarray, "*batch step p"]]:
    """The times of a descent, and its products."""
    return np.array([step.time for step in steps]), np.stack([step.p.numpy() for step in steps], -2)


def root_speed(descent: Iterable[DiagonalStep], begin: int, end: int) -> Float[Tensor, "*batch p"]:
    r"""How fast $\sqrt{|p|}$ grows per τ between two steps."""
    (t_0, r_0), (t_1, r_1) = (
        (step.time, step.p.abs().sqrt()) for step in descent if step.number in (begin, end)
    )
    return (r_1 - r_0) / (t_1 - t_0)


def first_rise(descent: Iterable[DiagonalStep], threshold: float) -> Float[Tensor, "*batch"]:
    """The time at which a |p| of each network exceeds the threshold first; infinite where none
    does.
    """
    risen = torch.tensor(torch.inf, dtype=torch.float64)
    for step in descent:
        now = (step.p.abs() > threshold).any(-1)
        risen = torch.where(now & risen.isinf(), step.time, risen)
        if risen.isfinite().all():
            break
    return risen


def until_changed(
    descent: Iterable[DiagonalStep], s: Float[Tensor, "*batch p"]
) -> Iterator[DiagonalStep]:
    """Yield a descent up to the step at which, in each network, a g that had the sign s has had the
    other after it.
    """
    changed = torch.tensor(False)
    had = torch.zeros_like(s, dtype=torch.bool)
    for step in descent:
        yield step
        along = s * step.g
        changed = changed | (had & (along < 0)).any(-1)
        if changed.all():
            return
        had = along > 0


def until_fallen(
    descent: Iterable[DiagonalStep], value: Callable[[Tensor], Tensor], share: float, every: int
) -> Iterator[DiagonalStep]:
    """Yield a descent until each network's loss `value(p)` is at most that share of that of zero,
    seen at every so many steps.
    """
    bar = None
    for step in descent:
        yield step
        bar = share * value(torch.zeros_like(step.u)) if bar is None else bar
        if step.number % every == 0 and (value(step.p) <= bar).all():
            return


def descend_roots(
    gradient: Callable[[Tensor], Tensor], q: Tensor, rate: float, n_steps: int
) -> Iterator[Float[Tensor, "*batch p"]]:
    """Yield the products p = q |q| of signed roots q, first those of the start, under steps of the
    signs of g(p).
    """
    for _ in range(n_steps):
        p = q * q.abs()
        yield p
        q = q + rate * gradient(p).sign()
    yield q * q.abs()


def warmed_up(first: float, growth: float, rate: float, time: float) -> list[float]:
    """Rates that grow from the first by a factor a step up to `rate`, and stay there until their
    sum is `time`.
    """
    found = []
    total = 0.0
    while total < time:
        found.append(min(rate, first * growth ** len(found) if first < rate else rate))
        total += found[-1]
    return found
