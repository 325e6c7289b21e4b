"""Plain gradient descent with constant step sizes, as a generator of its steps."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import NamedTuple

import torch
from torch import Tensor

Weights = dict[str, Tensor]


class Step(NamedTuple):
    """The step from $W^{(t)}$, with the loss and its gradients there, to $W^{(t+1)}$."""

    number: int
    weights: Weights
    loss: Tensor
    gradients: Weights
    after: Weights


def gradient_descent(
    loss_gradient: Callable[..., tuple[Tensor, Weights]],
    start: Weights,
    learning_rate: float | Mapping[str, float],
    batches: Iterable[tuple[Tensor, ...]] | None = None,
) -> Iterator[Step]:
    r"""Yield the steps $W^{(t+1)} = W^{(t)} - \eta \nabla \mathrm{loss}(W^{(t)}; \mathrm{batch}_t)$, t = 0, 1, ...

    `loss_gradient(weights, *batch)` gives the loss (or one for each of a stack) and the gradients. One η moves every
    matrix that has a gradient; a mapping names the matrices that move, each with its own. Without batches the loss is
    that of all data, and the steps have no end. No tensor of a step is changed later.
    """
    weights = dict(start)
    for number, batch in enumerate(repeat(()) if batches is None else batches):
        loss, gradients = loss_gradient(weights, *batch)
        rates = learning_rate if isinstance(learning_rate, Mapping) else dict.fromkeys(gradients, learning_rate)
        after = weights | {name: weights[name] - rate * gradients[name] for name, rate in rates.items()}
        yield Step(number, weights, loss, gradients, after)
        weights = after


@dataclass(frozen=True)
class CompliantDescent:
    """A descent whose step size is at most the inverse of the largest curvature that was found along it."""

    step_size: float
    steps: list[Step]
    largest: float  # curvature along the path
    initial: float  # curvature at its start
    n_failures: int  # of the descent lemma, beyond rounding


def compliant_descent(
    loss_gradient: Callable[[Weights], tuple[Tensor, Weights]],
    start: Weights,
    names: tuple[str, ...],
    right: Callable[[Weights], bool],
    curvature: Callable[[Weights], float],
    *,
    spare: float,
    n_samples: int,
    max_steps: int,
    max_repeats: int,
) -> CompliantDescent:
    """Descend until all is `right`, with a step size that the curvature along the whole path allows.

    The path depends on the step size: where the curvature found along it, at `n_samples` points of each segment,
    exceeds 1 / step size, the descent is repeated with the inverse of what was found, times 1 + `spare`. Curvature
    creeps up along a path whose step shrinks: without something to spare nearly every descent is repeated many times.
    Raises `ArithmeticError` where `max_repeats` descents do not suffice.
    """
    initial = largest = curvature(start)
    for _ in range(max_repeats):
        step_size, steps = 1 / ((1 + spare) * largest), []
        for step in gradient_descent(loss_gradient, start, dict.fromkeys(names, step_size)):
            if steps:
                before = steps[-1].weights
                for share in torch.linspace(0, 1, n_samples + 1).square().tolist()[1:]:
                    between = {name: torch.lerp(before[name], step.weights[name], share) for name in names}
                    largest = max(largest, curvature(before | between))
            steps.append(step)
            if right(step.weights) or step.number >= max_steps or largest * step_size > 1:
                break
        if largest * step_size <= 1:
            return CompliantDescent(step_size, steps, largest, initial, descent_failures(steps, names, step_size))
    raise ArithmeticError(f"wanted a step size that fits the curvature, got none in {max_repeats} descents")


def descent_failures(steps: Iterable[Step], names: tuple[str, ...], step_size: float) -> int:
    """At how many steps the loss is above what the descent lemma allows, L − step_size |∇L|² / 2, beyond rounding."""
    found = 0
    for a, b in pairwise(steps):
        square = sum(float(a.gradients[name].square().sum()) for name in names)
        found += float(b.loss) > float(a.loss) - step_size / 2 * square + 1e-13
    return found
