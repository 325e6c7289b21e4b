"""Full-batch and minibatch descents on tensors by name, as generators of their steps."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, NamedTuple

from torch import Tensor

Weights = dict[str, Tensor]


class Step(NamedTuple):
    """The step from $W^{(t)}$, with the loss and its gradients there, to $W^{(t+1)}$."""

    number: int
    weights: Weights
    loss: Tensor
    gradients: Weights
    after: Weights


def descent(
    loss_gradient: Callable[..., tuple[Any, Weights]],
    start: Weights,
    move: Callable[[int, Weights, Weights], Weights],
    batches: Iterable[tuple[Tensor, ...]] | None = None,
) -> Iterator[Step]:
    """Yield the steps to `move(t, weights, gradients)`, t = 0, 1, ..., while there are batches.

    Without batches there is no end. `loss_gradient(weights, *batch)` gives the loss (or one for
    each training of a stack) and the gradients. A weight that `move` does not name stays as it is.
    No tensor of a step is changed later.
    """
    weights = dict(start)
    for number, batch in enumerate(repeat(()) if batches is None else batches):
        loss, gradients = loss_gradient(weights, *batch)
        after = weights | move(number, weights, gradients)
        yield Step(number, weights, loss, gradients, after)
        weights = after


def gradient_descent(
    loss_gradient: Callable[..., tuple[Tensor, Weights]],
    start: Weights,
    learning_rate: float | Mapping[str, float],
    batches: Iterable[tuple[Tensor, ...]] | None = None,
) -> Iterator[Step]:
    r"""Yield $W^{(t+1)} = W^{(t)} - \eta \nabla \mathrm{loss}(W^{(t)}; \mathrm{batch}_t)$.

    One η moves every matrix that has a gradient; a mapping names the matrices that move, each with
    its own. Without batches the loss is that of all data, and the steps have no end.
    """

    def move(_: int, weights: Weights, gradients: Weights) -> Weights:
        rates = learning_rate
        if not isinstance(rates, Mapping):
            rates = dict.fromkeys(gradients, rates)
        return {name: weights[name] - rate * gradients[name] for name, rate in rates.items()}

    return descent(loss_gradient, start, move, batches)


def last_and_fitted(steps: Iterable[Step], start: Weights, level: float) -> tuple[Weights, int]:
    """The weights after the last step, and the number of the first step whose loss is below a
    level, -1 where no loss is.

    Where there is no step, the weights are those at the start.
    """
    last = start
    fitted = -1
    for step in steps:
        last = step.after
        if fitted < 0 and step.loss < level:
            fitted = step.number
    return last, fitted


def until_rest(
    steps: Iterable[Step], at_rest: Callable[[Weights], bool], every: int
) -> Iterator[Step]:
    """Yield steps until one has no loss and leaves the weights at rest: no later step would move
    them.

    After a step without loss `at_rest(weights)` is asked, at most once in so many steps, as it
    costs as much as some of them.
    """
    next_check = 0
    for step in steps:
        yield step
        if step.number >= next_check and not step.loss.any():
            if at_rest(step.after):
                return
            next_check = step.number + every
