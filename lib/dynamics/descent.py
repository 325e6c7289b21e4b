"""Gradient descent with a fixed step size on a loss that comes with its gradients."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Descended:
    """Where the descent stands after `step` steps: weights, and loss and gradients there."""

    step: int
    weights: Weights
    loss: Tensor
    gradients: Weights


def gradient_descent(
    loss_gradients: Callable[[Weights], tuple[Tensor, Weights]], start: Weights, step_sizes: dict[str, float]
) -> Iterator[Descended]:
    """Yield the start and then, without end, the state after each step W ← W − step_size ∇_W.

    Only matrices that `step_sizes` names move. Every state has tensors of its own.
    """
    weights, step = start, 0
    while True:
        loss, gradients = loss_gradients(weights)
        yield Descended(step, weights, loss, gradients)
        weights = weights | {name: weights[name] - size * gradients[name] for name, size in step_sizes.items()}
        step += 1
