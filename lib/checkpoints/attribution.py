"""The loss that each module's update earned, by the path from the start to the end of its
training.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

Loss = Callable[[Any], Tensor]  # of a batch, by the parameters as they are now


def path_attribution(
    parameters: Mapping[str, Float[Tensor, "_ _"]],
    updates: Mapping[str, Float[Tensor, "_ _"]],
    batches: Sequence[Any],
    loss: Loss,
    n_points: int,
) -> dict[str, float]:
    r"""$g_i = -\int_0^1 \langle \nabla_{W_i} L(W_0 + t\,\Delta W), \Delta W_i \rangle\, dt$, in
    units of the loss.

    The integral is the mean over the midpoints of `n_points` equal parts of the path, the gradient
    the mean over the batches: `n_points` × batches backward passes. The sum over modules is the
    drop $L(W_0) - L(W_0 + \Delta W)$, up to the error of the midpoint rule (integrated gradients,
    Sundararajan et al. 2017, of weights in place of inputs).

    `parameters` hold $W_0 + \Delta W$, are moved along the path in place, and are left as they
    were, to the bit. Whatever else the loss depends on stays as it is.
    """
    ended = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    earned = dict.fromkeys(parameters, 0.0)
    ordered = list(parameters.values())
    try:
        for point in range(n_points):
            back = 1 - (point + 0.5) / n_points  # what is missing to the end
            with torch.no_grad():
                for name, parameter in parameters.items():
                    parameter.copy_(ended[name] - back * updates[name].to(parameter))
            total = [torch.zeros_like(parameter) for parameter in ordered]
            for batch in batches:
                for sum_of, gradient in zip(
                    total, torch.autograd.grad(loss(batch), ordered), strict=True
                ):
                    sum_of += gradient
            for name, gradient in zip(parameters, total, strict=True):
                slope = (gradient.double() * updates[name].to(gradient.device).double()).sum()
                earned[name] -= float(slope) / (len(batches) * n_points)
    finally:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(ended[name])
    return earned
