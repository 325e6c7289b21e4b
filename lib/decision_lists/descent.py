"""Gradient descent with the inverse of the largest curvature along its own path as step size."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lib.decision_lists.attention import PopulationLoss
from lib.decision_lists.bounds import DescentBound, descent_bound_of
from lib.decision_lists.lists import Task
from lib.files.params import Interval
from lib.training.devices import generator
from lib.training.gradient_descent import Step, Weights, gradient_descent

Noise = Literal["none", "uniform", "adversarial"]
ITERATIONS = 60  # at most, of the equation for c, whose L_0 is measured at c
FLIPS = 20  # rounds in which the signs of the adversarial noise settle; a few suffice
FLAT = 1e-12  # below it, an entry of the gradient has no sign
# The residual of a Ritz pair over its value; the value's own error is of the order of its square.
RESIDUAL = 1e-3
COARSE = 0.05  # the same, where it is enough to know that a value is not the largest
DEEPEST = 12  # the most halvings of a segment
# Below this share of the largest curvature, one that hardly changes is not looked at in every
# segment.
CALM = 0.25
HARDLY = 0.1  # the share by which a curvature hardly changes from one look to the next
WIDEST = 32  # the most steps from one look to the next


@dataclass(frozen=True)
class Solver:
    """How step sizes (`compliant_descent`) and curvatures in W and V are found."""

    spare: Annotated[float, Interval("[0, 1]")]
    tolerance: Annotated[float, Interval("[1e-6, 1]")]
    n_checked: Annotated[int, Interval("[2, 1000]")]
    max_steps: Annotated[int, Interval("[1, 100000]")]  # all are held in memory
    max_repeats: Annotated[int, Interval("[1, 100]")]
    lanczos_iterations: Annotated[int, Interval("[2, 200]")]


def largest_eigenpair(
    apply: Callable[[Tensor], Tensor],
    start: Float[Tensor, " n"],
    n_iterations: int,
    known: float = 0.0,
) -> tuple[float, Float[Tensor, " n"]]:
    """The largest eigenvalue of the symmetric map `apply` and its unit vector, by Lanczos.

    The basis is fully reorthogonalised. The value is the Ritz value from the Krylov space of
    `start`, never above the eigenvalue but for rounding, and exact once the space is invariant. The
    search ends once an eigenvalue is within `RESIDUAL` of it, relatively, or within `COARSE` and
    still far below `known`.
    """
    basis = [start / start.norm()]
    T = np.zeros((n_iterations + 1, n_iterations + 1))
    value = 0.0
    weights = np.ones(1)
    for number in range(min(n_iterations, len(start))):
        image = apply(basis[-1])
        T[number, number] = float(torch.dot(image, basis[-1]))
        scale = float(image.norm())
        Q = torch.stack(basis)
        for _ in range(2):
            image = image - Q.T @ (Q @ image)
        left = float(image.norm())
        values, vectors = np.linalg.eigh(T[: number + 1, : number + 1])
        value = float(values[-1])
        weights = vectors[:, -1]
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


class WarmCurvature:
    """The largest curvature of a loss, as `largest_eigenpair` finds it.

    The search starts from the direction of the gradient, which alone may lie in a space that misses
    it, and as much of a random one. As much of the direction that was found before, at a point
    nearby, saves a third of the iterations.
    """

    def __init__(self, loss: PopulationLoss, n_iterations: int):
        self.loss = loss
        self.n_iterations = n_iterations
        n_weights = 2 * len(loss.permutation) ** 2
        self.draw = torch.randn(n_weights, generator=generator(0, "curvature"), dtype=torch.float64)
        self.near: Tensor | None = None

    def __call__(self, weights: Weights, known: float) -> float:
        """The curvature at these weights; it need not be exact where it is below `known`."""
        hessian, gradient = self.loss.hessian(weights)
        start = gradient / gradient.norm() + self.draw / self.draw.norm()
        start = start if self.near is None else start + self.near
        value, self.near = largest_eigenpair(hessian, start, self.n_iterations, known)
        return value


def noisy_start(
    task: Task, noise: Noise, loss: PopulationLoss, seed: int
) -> tuple[DescentBound, float, Tensor]:
    """The constants of part 2 with noise in V_0, how far c is from its equation, and V_0.

    ε is the one without noise; L_0 is the loss that is measured, and c its fixed point.
    """
    plain = descent_bound_of(task)
    P = task.label_matrix
    most = plain.epsilon / 2
    zero = offset = torch.zeros_like(P)
    if noise == "uniform":
        draw = generator(seed, "noise", task.name)
        offset = most * (2 * torch.rand(P.shape, generator=draw, dtype=torch.float64) - 1)
    elif noise == "adversarial":
        # This is the steepest ascent of the loss within ε/2 an entry, until no sign changes.
        for _ in range(FLIPS):
            _, gradients = loss({"W": zero, "V": plain.scale * P + offset})
            before = offset
            offset = most * (gradients["V"].sign() * (gradients["V"].abs() > FLAT))
            if torch.equal(offset, before):
                break

    def at_its_loss(bound: DescentBound) -> DescentBound:
        L_0, _ = loss({"W": zero, "V": bound.scale * P + offset})
        return replace(bound, L_0=float(L_0))

    seen = [plain]
    while len(seen) <= ITERATIONS and seen.count(seen[-1]) == 1:
        seen.append(at_its_loss(seen[-1]))
    # The last digits may go round in a circle: what would come after all iterations is known then.
    first = seen.index(seen[-1])
    period = len(seen) - 1 - first
    bound = seen[first + (ITERATIONS - first) % period] if period else seen[-1]
    residual = abs(at_its_loss(bound).scale / bound.scale - 1)
    return bound, residual, bound.scale * P + offset


@dataclass(frozen=True)
class CompliantDescent:
    """A descent whose step size is at most the inverse of the largest curvature found along it."""

    step_size: float
    steps: list[Step]
    curvatures: list[float]  # at each step, NaN where there was no look
    # The largest curvature along the path, and along earlier descents, whose steps were longer.
    largest: float
    # The largest of the segment where that was found, at many points evenly spaced.
    on_a_finer_grid: float

    def about(self) -> dict[str, float]:
        """The step size, the number of steps, and the curvature on the way."""
        return {
            "step_size": self.step_size,
            "n_steps": self.steps[-1].number,
            "curvature_growth": self.largest / self.curvatures[0],
            "step_times_curvature": self.step_size * self.largest,
            "on_a_finer_grid": self.step_size * self.on_a_finer_grid,
        }


def compliant_descent(
    loss: Callable[[Weights], tuple[Tensor, Weights]],
    start: Weights,
    names: Sequence[str],
    right: Callable[[Weights], bool],
    curvature: Callable[[Weights, float], float],
    solver: Solver,
) -> CompliantDescent:
    """Descend on the matrices `names` until all is `right`, with a step size that the path allows.

    `curvature(weights, known)` need not be exact where it is below `known`. The path depends on the
    step size: where the curvature found along it (`largest_between`) exceeds 1 / step size, the
    descent is repeated with the inverse of what was found, times 1 + `spare`. While the curvature
    is `CALM`, segments are left out, one, then three, and so on. At the end the segment where the
    largest was found is looked at anew, at `n_checked` points, and the descent repeated once more
    where the step size does not fit these. Raises `ArithmeticError` where `max_repeats` descents do
    not suffice.
    """
    initial = largest = curvature(start, 0.0)
    for _ in range(solver.max_repeats):
        step_size = 1 / ((1 + solver.spare) * largest)
        steps: list[Step] = []
        curvatures = [initial]
        segments: list[float] = []
        last = initial
        width = next_look = 1
        for step in gradient_descent(loss, start, dict.fromkeys(names, step_size)):
            if step.number == next_look:
                before = last
                on = _between(steps[-1].weights, step.weights, names, curvature)
                found, last = largest_between(on, before, largest, solver.tolerance)
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
            too_long = largest * step_size > 1
            if right(step.weights) or step.number >= solver.max_steps or too_long:
                break
        finer = initial
        if segments and largest * step_size <= 1:
            k = segments.index(max(segments))
            on = _between(steps[k].weights, steps[k + 1].weights, names, curvature)
            finer = max(on(i / (solver.n_checked - 1), 0.0) for i in range(solver.n_checked))
        if max(largest, finer) * step_size <= 1:
            return CompliantDescent(step_size, steps, curvatures, largest, finer)
        largest = max(largest, finer)
    raise ArithmeticError(
        f"wanted a step size that fits the curvature, got none in {solver.max_repeats} descents"
    )


def largest_between(
    value: Callable[[float, float], float], first: float, known: float, tolerance: float
) -> tuple[float, float]:
    """The largest `value(share, known)` for shares from 0, where it is `first`, to 1; and the last.

    Intervals are halved until what a parabola through both ends and the middle may add is at most
    `tolerance` of the largest value known: the grid is dense about the maximum alone. Where both
    ends, and four times their difference above, are below what is known, there is no look at the
    middle.
    """
    last = value(1.0, known)
    best = max(first, last)
    if best + 4 * abs(last - first) < known:
        return best, last
    intervals = [(0.0, 1.0, first, last, 0)]
    while intervals:
        a, b, at_a, at_b, depth = intervals.pop()
        middle = (a + b) / 2
        between = value(middle, max(known, best))
        best = max(best, between)
        bend = abs(at_a + at_b - 2 * between)  # eight times what the parabola adds
        above = max(at_a, between, at_b) + bend
        if above > (1 + tolerance) * max(known, best) and depth < DEEPEST:
            intervals.append((a, middle, at_a, between, depth + 1))
            intervals.append((middle, b, between, at_b, depth + 1))
    return best, last


def _between(
    before: Weights,
    after: Weights,
    names: Sequence[str],
    curvature: Callable[[Weights, float], float],
) -> Callable[[float, float], float]:
    """The curvature on the segment between two steps, as a function of the share of the way."""

    def at(share: float, known: float) -> float:
        moved = {name: torch.lerp(before[name], after[name], share) for name in names}
        return curvature(before | moved, known)

    return at
