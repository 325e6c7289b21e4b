"""The loss that each module's update earned, by the path from the start to the end of its
training.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lib.checkpoints.gains import LinearUpdates
from lib.checkpoints.library import refusing
from lib.checkpoints.texts import Batch, loss, shares
from lib.checkpoints.update_spectra import blocks

Loss = Callable[[Any], Tensor]  # of a batch, by the parameters as they are now


def path_attribution(
    parameters: Mapping[str, Float[Tensor, "_ _"]],
    updates: Mapping[str, Float[Tensor, "_ _"]],
    batches: Sequence[Any],
    loss: Loss,
    n_points: int,
    ended: Mapping[str, Float[Tensor, "_ _"]] | None = None,
) -> dict[str, float]:
    r"""$g_i = -\int_0^1 \langle \nabla_{W_i} L(W_0 + t\,\Delta W), \Delta W_i \rangle\, dt$, in
    units of the loss.

    The integral is the mean over the midpoints of `n_points` equal parts of the path, the gradient
    the mean over the batches: `n_points` × batches backward passes. The sum over modules is the
    drop $L(W_0) - L(W_0 + \Delta W)$, up to the error of the midpoint rule (integrated gradients,
    Sundararajan et al. 2017, of weights in place of inputs).

    `parameters` hold $W_0 + \Delta W$, are moved along the path in place, and are left as they
    were, to the bit: `ended` are copies of them, which are made here where there are none. Whatever
    else the loss depends on stays as it is. Of slopes one module's is held at a time: each is
    multiplied with the update as the backward pass gives it. Raises `InputError` where a pass
    fails.
    """
    if ended is None:
        ended = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    earned = dict.fromkeys(parameters, 0.0)
    share = 1 / (len(batches) * n_points)

    def earn(name: str, parameter: Tensor) -> None:
        assert parameter.grad is not None
        earned[name] -= share * _inner(parameter.grad, updates[name].to(parameter.device))
        parameter.grad = None

    hooks = [
        parameter.register_post_accumulate_grad_hook(partial(earn, name))
        for name, parameter in parameters.items()
    ]
    for parameter in parameters.values():
        parameter.grad = None
    try:
        for point in range(n_points):
            back = 1 - (point + 0.5) / n_points  # what is missing to the end
            with torch.no_grad():
                for name, parameter in parameters.items():
                    end = ended[name].to(parameter)
                    parameter.copy_(end - back * updates[name].to(parameter))
            for batch in batches:
                with refusing("TEXT: wanted samples of which the model has a slope"):
                    loss(batch).backward(inputs=list(parameters.values()))
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(ended[name])
    return earned


def attributed(linear: LinearUpdates, batches: Sequence[Batch], n_points: int) -> dict[str, float]:
    """What each module earned."""
    linear.set(linear.tuned.items())
    weighted = list(zip(shares(batches), batches, strict=True))

    def of_batch(one: tuple[float, Batch]) -> Tensor:
        share, batch = one
        return share * loss(linear.model, batch)

    held = (linear.parameters, linear.updates)
    return path_attribution(*held, weighted, of_batch, n_points, linear.tuned)


def _inner(A: Float[Tensor, "row col"], B: Float[Tensor, "row col"]) -> float:
    """The inner product of two matrices, summed in float64 by blocks of rows."""
    parts = (A[rows].double() * B[rows].double() for rows in blocks(A))
    return sum((float(part.sum()) for part in parts), start=0.0)
