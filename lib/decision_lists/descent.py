"""Gradient descent whose step size is the inverse of the largest curvature along its own path, and
that curvature.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

RESIDUAL = (
    1e-3  # of a Ritz pair, over its value: the value's own error is of the order of the square
)
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

    From the direction of the gradient, which alone may lie in a space that misses it, and as much
    of a random one; and as much of `near`, the direction that was found at a point nearby, which
    saves a third of the iterations.
    """
    start = gradient / gradient.norm() + draw / draw.norm()
    return largest_eigenpair(hessian, start if near is None else start + near, n_iterations, known)


def largest_eigenpair(
    apply: Callable[[Tensor], Tensor],
    start: Float[Tensor, " n"],
    n_iterations: int,
    known: float = 0.0,
) -> tuple[float, Float[Tensor, " n"]]:
    """Largest (algebraic) eigenvalue of the symmetric map `apply`, by Lanczos with full
    reorthogonalisation.

    The Ritz value from the Krylov space of `start`: never above the eigenvalue but for rounding;
    and its unit vector. It is taken once an eigenvalue is within `RESIDUAL` of it, relatively, or
    within `COARSE` and still far below `known`; and is exact once the space is invariant.
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
        if (
            left <= 1e-12 * scale
            or not scale
            or (number and (residual < RESIDUAL * value or below))
        ):
            break
        T[number, number + 1] = T[number + 1, number] = left
        basis.append(image / left)
    return value, torch.from_numpy(weights) @ torch.stack(basis[: len(weights)])


Weights = dict[str, Tensor]

DEEPEST = 12  # halvings of a segment
# of the largest curvature: a curvature below it that hardly changes is not looked at in every
# segment
CALM = 0.25
HARDLY = 0.1  # of the curvature, since the last look
WIDEST = 32  # steps from one look to the next


@dataclass(frozen=True)
class CompliantDescent:
    """A descent whose step size is at most the inverse of the largest curvature that was found
    along it.
    """

    step_size: float
    steps: list[Any]  # with `number`, `weights`, and `loss` and `gradients` there
    curvatures: list[float]  # at each step, NaN where there was no look
    largest: float  # along the path, and along the descents before, whose first steps were longer
    on_a_finer_grid: (
        float  # the largest of the segment where that was found, at many points evenly spaced
    )
    n_failures: int  # of the descent lemma, beyond rounding


def compliant_descent(
    descend: Callable[[float], Iterator[Any]],
    start: Weights,
    names: tuple[str, ...],
    right: Callable[[Weights], bool],
    curvature: Callable[[Weights, float], float],
    *,
    spare: float,
    tolerance: float,
    n_checked: int,
    max_steps: int,
    max_repeats: int,
) -> CompliantDescent:
    """Descend until all is `right`, with a step size that the curvature along the whole path
    allows.

    `descend(step_size)` gives the steps of a descent on the matrices `names` from `start`.
    `curvature(weights, known)` need not be exact where it is below `known`. The path depends on the
    step size: where the curvature found along it (`largest_between`) exceeds 1 / step size, the
    descent is repeated with the inverse of what was found, times 1 + `spare`. While the curvature
    is `CALM`, segments are left out, one, then three, and so on. At the end the segment where the
    largest was found is looked at anew, at `n_checked` points, and the descent repeated once more
    where the step size does not fit these. Raises `ArithmeticError` where `max_repeats` descents do
    not suffice.
    """
    initial = largest = curvature(start, 0.0)
    for _ in range(max_repeats):
        step_size = 1 / ((1 + spare) * largest)
        steps, curvatures, segments = [], [initial], []
        last, width, next_look = initial, 1, 1
        for step in descend(step_size):
            if step.number == next_look:
                on, before = _between(steps[-1].weights, step.weights, names, curvature), last
                found, last = largest_between(on, before, largest, tolerance)
                largest = max(largest, found)
                calm = last < CALM * largest and abs(last - before) < HARDLY * before
                width = min(2 * width, WIDEST) if calm else 1
                next_look = step.number + width
                curvatures.append(last)
                segments.append(found)
            elif steps:
                curvatures.append(math.nan)
                segments.append(-math.inf)
            steps.append(step)
            if right(step.weights) or step.number >= max_steps or largest * step_size > 1:
                break
        finer = initial
        if segments and largest * step_size <= 1:
            k = segments.index(max(segments))
            on = _between(steps[k].weights, steps[k + 1].weights, names, curvature)
            finer = max(on(i / (n_checked - 1), 0.0) for i in range(n_checked))
        if max(largest, finer) * step_size <= 1:
            failures = descent_failures(steps, names, step_size)
            return CompliantDescent(step_size, steps, curvatures, largest, finer, failures)
        largest = max(largest, finer)
    raise ArithmeticError(
        f"wanted a step size that fits the curvature, got none in {max_repeats} descents"
    )


def largest_between(
    value: Callable[[float, float], float], first: float, known: float, tolerance: float
) -> tuple[float, float]:
    """The largest `value(share, known)` found for shares from 0, where it is `first`, to 1, and the
    last.

    Intervals are halved until what a parabola through both ends and the middle may add is at most
    `tolerance` of the largest value known: the grid is dense about the maximum alone. Where both
    ends, and four times their difference above, are below what is known, there is no look at the
    middle.
    """
    last = value(1.0, known)
    best, intervals = max(first, last), [(0.0, 1.0, first, last, 0)]
    if best + 4 * abs(last - first) < known:
        return best, last
    while intervals:
        a, b, at_a, at_b, depth = intervals.pop()
        middle = (a + b) / 2
        between = value(middle, max(known, best))
        best = max(best, between)
        above = max(at_a, between, at_b) + abs(
            at_a + at_b - 2 * between
        )  # eight times what the parabola adds
        if above > (1 + tolerance) * max(known, best) and depth < DEEPEST:
            intervals += [
                (a, middle, at_a, between, depth + 1),
                (middle, b, between, at_b, depth + 1),
            ]
    return best, last


def descent_failures(steps: Iterable[Any], names: tuple[str, ...], step_size: float) -> int:
    """At how many steps the loss is above what the descent lemma allows, L − step_size |∇L|² / 2,
    beyond rounding.
    """
    found = 0
    for a, b in pairwise(steps):
        square = sum(float(a.gradients[name].square().sum()) for name in names)
        found += float(b.loss) > float(a.loss) - step_size / 2 * square + 1e-13
    return found


def _between(
    before: Weights,
    after: Weights,
    names: tuple[str, ...],
    curvature: Callable[[Weights, float], float],
) -> Callable[[float, float], float]:
    """The curvature on the segment between two steps, as a function of the share of the way."""

    def at(share: float, known: float) -> float:
        return curvature(
            before | {name: torch.lerp(before[name], after[name], share) for name in names}, known
        )

    return at
