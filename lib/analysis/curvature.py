"""The largest curvature of a loss: the step size below which gradient descent provably descends."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

RESIDUAL = 1e-3  # of a Ritz pair, over its value: the value's own error is of the order of the square
COARSE = 0.05  # the same, where it is enough to know that a value is not the largest


def largest_curvature(
    hessian: Callable[[Tensor], Tensor],
    gradient: Float[Tensor, " n"],
    draw: Float[Tensor, " n"],
    n_iterations: int,
    known: float = 0.0,
) -> float:
    """The largest eigenvalue of a Hessian, as `largest_eigenvalue` finds it.

    From the direction of the gradient, which alone may lie in a space that misses it, and as much of a random one.
    """
    start = gradient / gradient.norm() + draw / draw.norm()
    return largest_eigenvalue(hessian, start, n_iterations, known)


def largest_eigenvalue(
    apply: Callable[[Tensor], Tensor], start: Float[Tensor, " n"], n_iterations: int, known: float = 0.0
) -> float:
    """Largest (algebraic) eigenvalue of the symmetric map `apply`, by Lanczos with full reorthogonalisation.

    The Ritz value from the Krylov space of `start`: never above the eigenvalue but for rounding. It is taken once an
    eigenvalue is within `RESIDUAL` of it, relatively, or within `COARSE` and still far below `known`; and is exact once
    the space is invariant.
    """
    basis = [start / start.norm()]
    diagonal, beside, value = [], [], 0.0
    for number in range(min(n_iterations, len(start))):
        image = apply(basis[-1])
        diagonal.append(float(torch.dot(image, basis[-1])))
        scale = image.norm()
        Q = torch.stack(basis)
        for _ in range(2):
            image = image - Q.T @ (Q @ image)
        left = float(image.norm())
        T = torch.diag(torch.tensor(diagonal, dtype=start.dtype))
        if beside:
            off = torch.tensor(beside, dtype=start.dtype)
            T = T + torch.diag(off, 1) + torch.diag(off, -1)
        values, vectors = torch.linalg.eigh(T)
        value, residual = float(values[-1]), left * abs(float(vectors[-1, -1]))
        below = value + 4 * residual < known and residual < COARSE * value
        if left <= 1e-12 * float(scale) or not float(scale) or (number and (residual < RESIDUAL * value or below)):
            break
        beside.append(left)
        basis.append(image / left)
    return value
