"""Gradient flow of small stiff systems, step by step, with the path between the steps."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.integrate import LSODA

Vector = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class Step:
    """Where the flow stands at `time`, and the path since `before`, an interpolation of the solver's own order."""

    before: float
    time: float
    state: Vector
    path: Callable[[float], Vector]


def stiff_flow(
    velocity: Callable[[Vector], Vector],
    jacobian: Callable[[Vector], Float[np.ndarray, "n n"]] | None,
    start: Vector,
    end: float,
    *,
    rtol: float,
    atol: float,
) -> Iterator[Step]:
    """Yield every step of `dx/dt = velocity(x)` from 0 to `end`: Adams, and BDF where it is stiff (LSODA).

    Local error below `rtol` |x| + `atol`. Raises `ArithmeticError` where the solver gives up.
    """
    solver = LSODA(
        lambda _, x: velocity(x), 0.0, start, end, jac=jacobian and (lambda _, x: jacobian(x)), rtol=rtol, atol=atol
    )
    while solver.status == "running":
        before = solver.t
        message = solver.step()
        if solver.status == "failed" or solver.t - before < 1e-14 * solver.t or not np.isfinite(solver.y).all():
            raise ArithmeticError(f"the flow stopped at time {solver.t:g} of {end:g}: {message or 'its steps vanish'}")
        yield Step(before, solver.t, solver.y.copy(), solver.dense_output())


def first_crossing(step: Step, value: Callable[[Vector], float], n_halvings: int = 60) -> float:
    """The time within the step at which `value` of the path becomes positive, by bisection: it is so at the end."""
    low, high = step.before, step.time
    for _ in range(n_halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if value(step.path(middle)) > 0 else (middle, high)
    return high
