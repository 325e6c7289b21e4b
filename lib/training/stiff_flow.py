"""Gradient flow of small stiff systems, step by step, with the path between the steps."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from scipy.integrate import BDF, LSODA
from scipy.linalg.lapack import dgetrf, dgetrs

Vector = Float[np.ndarray, " n"]
NEAR = 10  # a step slower than so many times the velocity of rest may have come to rest
Method = Literal["LSODA", "BDF"]


class StalledError(ArithmeticError):
    """The solver cannot go on: its steps vanish, or numbers left the range of floating point."""


@runtime_checkable
class Loss(Protocol):
    """A twice differentiable loss of a vector p; in networks with diagonal weights, p are the
    products.
    """

    def gradient(self, p: torch.Tensor) -> torch.Tensor:
        """The negative gradient g(p)."""
        ...

    def hessian(self, p: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
        """The columns of the second derivatives in the support."""
        ...


@runtime_checkable
class Restrictable(Loss, Protocol):
    """A loss that may be cheaper where most products are zero."""

    def restricted(self, support: torch.Tensor) -> Loss:
        """The loss of the products in the support (rising) while the others are zero."""
        ...


def gradient(loss: Loss, p: Vector) -> Vector:
    """g(p); raises `StalledError` where it is not finite."""
    g = loss.gradient(torch.from_numpy(p)).numpy()
    if not np.isfinite(g).all():
        raise StalledError("wanted a finite gradient, got infinity or NaN")
    return g


class DirectBDF(BDF):
    """The BDF method of scipy, whose Newton systems go to LAPACK without scipy.linalg in between.

    The routines are those that scipy calls, and so are the bits of every step. Around systems of a
    few equations scipy's own calls take longer than LAPACK does.
    """

    def __init__(self, *system: Any, **options: Any):
        super().__init__(*system, **options)

        def lu(A: Float[np.ndarray, "n n"]) -> tuple[np.ndarray, np.ndarray]:
            self.nlu += 1
            factors, pivots, _ = dgetrf(np.asarray_chkfinite(A), overwrite_a=True)
            return factors, pivots

        def solve_lu(factored: tuple[np.ndarray, np.ndarray], b: Vector) -> Vector:
            solution, _ = dgetrs(*factored, np.asarray_chkfinite(b), overwrite_b=True)
            return solution

        self.lu = lu
        self.solve_lu = solve_lu


@dataclass(frozen=True)
class Step:
    """A step of the flow from its state at `before` to its state at `time`, and the path between
    them, interpolated in the solver's own order.
    """

    before: float
    time: float
    origin: Vector
    state: Vector
    path: Callable[[float], Vector]

    @property
    def mean_velocity(self) -> Vector:
        """The mean velocity over the step, a free check for being near rest."""
        return (self.state - self.origin) / (self.time - self.before)


def stiff_flow(
    velocity: Callable[[Vector], Vector],
    jacobian: Callable[[Vector], Float[np.ndarray, "n n"]] | None,
    start: Vector,
    end: float,
    *,
    rtol: float,
    atol: float,
    begin: float = 0.0,
    method: Method = "LSODA",
) -> Iterator[Step]:
    """Yield every step of `dx/dt = velocity(x)` from `begin` to `end`.

    The local error stays below `rtol` |x| + `atol`. LSODA (Adams, and BDF where the system is
    stiff) needs the fewest velocities on a long way. BDF begins anew at less cost, and its Newton
    iterations, at least two a step, come to rest at a stationary point, about which LSODA wanders
    within the tolerance. Raises `StalledError` where the solver gives up.
    """
    solver = {"LSODA": LSODA, "BDF": DirectBDF}[method](
        lambda _, x: velocity(x),
        begin,
        start,
        end,
        rtol=rtol,
        atol=atol,
        jac=jacobian and (lambda _, x: jacobian(x)),
    )
    while solver.status == "running":
        before = solver.t
        state = solver.y
        try:
            message = solver.step()
        except ValueError as error:  # a number that is not finite reached the linear algebra
            raise StalledError(
                f"the flow stopped at time {before:g} of {end:g}: {error}"
            ) from error
        vanished = solver.status == "running" and solver.t - before < 1e-14 * solver.t
        if solver.status == "failed" or vanished or not np.isfinite(solver.y).all():
            raise StalledError(
                f"the flow stopped at time {solver.t:g} of {end:g}: {message or 'its steps vanish'}"
            )
        yield Step(before, solver.t, state, solver.y.copy(), solver.dense_output())


def first_crossing(step: Step, value: Callable[[Vector], float]) -> float:
    """The time within the step at which `value` of the path becomes positive, by bisection; at the
    step's end it must be positive.
    """
    low = step.before
    high = step.time
    for _ in range(60):  # halvings, down to the last digit of a time
        middle = (low + high) / 2
        low, high = (low, middle) if value(step.path(middle)) > 0 else (middle, high)
    return high


def until_positive(
    steps: Iterable[Step], value: Callable[[Vector], float]
) -> tuple[float, list[Step]] | None:
    """The first time at which `value` is positive, with the steps up to it; None where it is
    positive at no step's end.
    """
    passed = []
    for step in steps:
        passed.append(step)
        if value(step.state) > 0:
            return first_crossing(step, value), passed
    return None


def along(steps: Sequence[Step], times: Float[np.ndarray, " time"]) -> Float[np.ndarray, "time n"]:
    """The states at rising times within the steps."""
    ends = np.array([step.time for step in steps])
    return np.stack([steps[int(np.searchsorted(ends, t))].path(t) for t in times])


def crossing_of(step: Step, coordinate: int, level: float) -> float:
    """The time within the step at which a coordinate comes to a level that lies between its values
    at both ends.
    """
    side = np.sign(step.state[coordinate] - level)
    return first_crossing(step, lambda x: float(side * (x[coordinate] - level)))
