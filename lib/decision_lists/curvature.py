"""The largest curvature of a loss: the step size below which gradient descent provably descends."""

from collections.abc import Callable

import numpy as np
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
    near: Float[Tensor, " n"] | None = None,
) -> tuple[float, Float[Tensor, " n"]]:
    """The largest eigenvalue of a Hessian with its direction, as `largest_eigenpair` finds them.

    From the direction of the gradient, which alone may lie in a space that misses it, and as much of a random one; and
    as much of `near`, the direction that was found at a point nearby, which saves a third of the iterations.
    """
    start = gradient / gradient.norm() + draw / draw.norm()
    return largest_eigenpair(hessian, start if near is None else start + near, n_iterations, known)


def largest_eigenpair(
    apply: Callable[[Tensor], Tensor], start: Float[Tensor, " n"], n_iterations: int, known: float = 0.0
) -> tuple[float, Float[Tensor, " n"]]:
    """Largest (algebraic) eigenvalue of the symmetric map `apply`, by Lanczos with full reorthogonalisation.

    The Ritz value from the Krylov space of `start`: never above the eigenvalue but for rounding; and its unit vector.
    It is taken once an eigenvalue is within `RESIDUAL` of it, relatively, or within `COARSE` and still far below
    `known`; and is exact once the space is invariant.
    """
    basis, T = [start / start.norm()], np.zeros((n_iterations + 1, n_iterations + 1))
    value, weights = 0.0, np.ones(1)
    for number in range(min(n_iterations, len(start))):
        image = apply(basis[-1])
        T[number, number] = float(torch.dot(image, basis[-1]))
        scale = float(image.norm())
        Q = torch.stack(basis)
        for _ in range(2):
            image = image - Q.T @ (Q @ image)
        left = float(image.norm())
        values, vectors = np.linalg.eigh(T[: number + 1, : number + 1])
        value, weights = float(values[-1]), vectors[:, -1]
        residual = left * abs(float(weights[-1]))
        below = value + 4 * residual < known and residual < COARSE * value
        if left <= 1e-12 * scale or not scale or (number and (residual < RESIDUAL * value or below)):
            break
        T[number, number + 1] = T[number + 1, number] = left
        basis.append(image / left)
    return value, torch.from_numpy(weights) @ torch.stack(basis[: len(weights)])
