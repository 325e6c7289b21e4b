"""The largest curvature of a loss: the step size below which gradient descent provably descends."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


def largest_curvature(
    hessian: Callable[[Tensor], Tensor], gradient: Float[Tensor, " n"], draw: Float[Tensor, " n"], n_iterations: int
) -> float:
    """The largest eigenvalue of a Hessian, as `largest_eigenvalue` finds it.

    From the direction of the gradient, which alone may lie in a space that misses it, and as much of a random one.
    """
    return largest_eigenvalue(hessian, gradient / gradient.norm() + draw / draw.norm(), n_iterations)


def largest_eigenvalue(apply: Callable[[Tensor], Tensor], start: Float[Tensor, " n"], n_iterations: int) -> float:
    """Largest (algebraic) eigenvalue of the symmetric map `apply`, by Lanczos with full reorthogonalisation.

    The Ritz value from the Krylov space of `start`: never above the eigenvalue but for rounding, and exact once the
    space is invariant.
    """
    basis = [start / start.norm()]
    diagonal, beside = [], []
    for _ in range(min(n_iterations, len(start))):
        image = apply(basis[-1])
        diagonal.append(torch.dot(image, basis[-1]))
        scale = image.norm()
        Q = torch.stack(basis)
        for _ in range(2):
            image = image - Q.T @ (Q @ image)
        left = image.norm()
        if left <= 1e-12 * scale or not scale:
            break
        beside.append(left)
        basis.append(image / left)
    T = torch.diag(torch.stack(diagonal))
    if len(diagonal) > 1:
        off = torch.stack(beside[: len(diagonal) - 1])
        T = T + torch.diag(off, 1) + torch.diag(off, -1)
    return float(torch.linalg.eigvalsh(T)[-1])
