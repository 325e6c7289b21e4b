"""Plain gradient descent with one constant step size, as a generator of states."""

from collections.abc import Callable, Iterable, Iterator

from torch import Tensor

Weights = dict[str, Tensor]


def gradient_descent(
    loss_gradient: Callable[..., tuple[Tensor, Weights]],
    start: Weights,
    batches: Iterable[tuple[Tensor, ...]],
    learning_rate: float,
) -> Iterator[tuple[int, Tensor, Weights]]:
    r"""Yield, for each batch, (t, loss, $W^{(t)}$): the number of updates done, the loss before the last of them, and
    $W^{(t)} = W^{(t-1)} - \eta \nabla \mathrm{loss}(W^{(t-1)}; \mathrm{batch}_t)$.

    `loss_gradient(weights, *batch)` gives the batch's loss (or one for each of a stack) and the gradient of every
    weight that is trained; the others stay. No tensor of a state is changed later.
    """
    weights = dict(start)
    for step, batch in enumerate(batches, 1):
        loss, gradient = loss_gradient(weights, *batch)
        weights = weights | {name: weights[name] - learning_rate * slope for name, slope in gradient.items()}
        yield step, loss, weights
