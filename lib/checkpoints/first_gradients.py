r"""The first gradient of every linear module of a model, and what an adapter has learned of it.

$G = -\partial L / \partial W$ is [out, in], however the module stores its weight W. One backward
pass gives it for all modules. An adapter adds s B A to W, with B [out, r] and A [r, in].
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lib.checkpoints.linear_modules import linear_modules, stored_as_columns
from lib.checkpoints.texts import Batch, loss


class Gradient(NamedTuple):
    """A module's gradient, and its first singular triplets."""

    G: Float[Tensor, "out in"]
    U: Float[Tensor, "out n"]
    sigma: Float[Tensor, " n"]
    V: Float[Tensor, "in n"]


class Factors(NamedTuple):
    """The factors of a module's adapter, which are trained."""

    A: Float[Tensor, "r in"]
    B: Float[Tensor, "out r"]


def first_gradients(model: torch.nn.Module, batch: Batch, n: int) -> dict[str, Gradient]:
    """Minus the gradient of the loss by each linear module's weight, with n triplets.

    The model is left with no gradient, and with no parameter that asks for one.
    """
    modules = linear_modules(model)
    for parameter in model.parameters():
        parameter.requires_grad = False
    weights: dict[str, Any] = {name: module.weight for name, module in modules.items()}
    for weight in weights.values():
        weight.requires_grad = True
    slopes = torch.autograd.grad(loss(model, batch), list(weights.values()))
    found = {}
    for (name, module), slope in zip(modules.items(), slopes, strict=True):
        weights[name].requires_grad = False
        G = -(slope.T if stored_as_columns(module) else slope).double()
        U, sigma, Vh = torch.linalg.svd(G, full_matrices=False)
        found[name] = Gradient(G, U[:, :n], sigma[:n], Vh[:n].T)
    return found


def factors_of(adapted: Any, names: Mapping[str, Any]) -> dict[str, Factors]:
    """The factors of the modules of these names in a model with an adapter of peft."""
    parameters = dict(adapted.named_parameters())

    def factor(name: str, of: str) -> Tensor:
        return parameters[f"base_model.model.{name}.lora_{of}.default.weight"]

    return {name: Factors(factor(name, "A"), factor(name, "B")) for name in names}


def learned(factors: Factors, gradient: Gradient, scaling: float) -> Float[Tensor, " n"]:
    r"""How much of each direction an adapter adds, $u_i^\top s B A v_i$."""
    A, B = (one.detach().double() for one in factors)
    return scaling * ((gradient.U.T @ B) * (A @ gradient.V).T).sum(1)


def first_shares(factors: Factors, gradient: Gradient) -> tuple[float, float]:
    r"""How much of the largest direction of B A lies in those of the gradient, out and in.

    $\|U^\top u\|^2$ and $\|V^\top v\|^2$ of the first singular pair u, v of B A. A random
    direction has n / out and n / in in the mean.
    """
    A, B = (one.detach().double() for one in factors)
    u, _, vh = torch.linalg.svd(B @ A, full_matrices=False)
    out = gradient.U.T @ u[:, 0]
    into = gradient.V.T @ vh[0]
    return float(out.square().sum()), float(into.square().sum())
