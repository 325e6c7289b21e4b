"""An example in which a product joins, leaves, and joins again with the other sign.

There plain descent in floating point is lost: when the product leaves, rounding has made |u| = |v|,
which plain descent can never leave again (`descent`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from lib.files.files import InputError
from lib.gradual_rank.descent import Form, descend, lost, while_finite, with_crossings
from lib.gradual_rank.diagonal_heads import Quadratic
from lib.gradual_rank.flow import LogCoordinates, log_flow, staged_flow, with_events
from lib.gradual_rank.greedy import greedy
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tasks import gaussian_pair
from lib.training.devices import generator

Precision = Literal["float64", "float32"]
Three = Float[np.ndarray, "3"]

SIZE = 3
REST = 1e-6  # where coordinates start, and when a stage is at rest
TOLERANCES: Any = {"rtol": 1e-6, "atol": 1e-4}  # the example costs little
MOST_EVENTS = 100
EVERY = 100  # steps from look to look for what is lost
DTYPES = {"float64": torch.float64, "float32": torch.float32}


class Activation(NamedTuple):
    """A product joins, or is lost to rounding: then its sign is 0."""

    method: str
    log10_init_scale: float
    coordinate: int
    sign: int
    rescaled_time: float
    lost: bool


@dataclass(frozen=True)
class Example:
    """The quadratic loss, and the direction (u, v) of the start."""

    loss: Quadratic
    u: Three
    v: Three


def rejoining(coupling: float, minimum: Sequence[float], seed: int) -> Example:
    r"""The quadratic in three coordinates whose Hessian is 1 on the diagonal, and the `coupling`
    between the third coordinate and each of the others.
    """
    H = torch.eye(SIZE, dtype=torch.float64)
    H[2, :2] = H[:2, 2] = coupling
    u, v = gaussian_pair(SIZE, generator(seed, "start of the example"))
    loss = Quadratic(H, torch.tensor(minimum, dtype=torch.float64))
    return Example(loss, u.numpy(), v.numpy())


def predicted_joins(
    example: Example, log10_scales: Sequence[float], rescaled_end: float, threshold: float
) -> Iterator[Activation]:
    """The activations by Algorithm 1 and, from each scale, by its finite-scale form and the flow.

    Both go on to the `rescaled_end`, in log(1 / init_scale).
    """
    loss = example.loss
    for stage in greedy(loss, SIZE, kick=REST, stationary=REST, **TOLERANCES):
        if stage.k:
            joined = (stage.coordinate, stage.sign, stage.time)
            yield Activation("Algorithm 1", -math.inf, *joined, lost=False)
    numbers = {"stationary": REST, "max_events": MOST_EVENTS, **TOLERANCES}
    for scale in log10_scales:
        unit = -scale * LOG10
        end = unit * rescaled_end
        start = LogCoordinates.of(example.u, example.v, -unit)
        staged = staged_flow(loss, start, end, threshold=threshold, **numbers)
        flow = with_events(log_flow(loss, start, end, **TOLERANCES), start, threshold)
        for method, events in (
            ("finite-scale Algorithm 1", staged),
            ("flow in log coordinates", (event for _, several in flow for event in several)),
        ):
            for event in events:
                if event.rises:
                    joined = (event.coordinate, event.sign, event.time / unit)
                    yield Activation(method, scale, *joined, lost=False)


def descended_joins(
    example: Example,
    log10_scale: float,
    learning_rate: float,
    n_steps: int,
    threshold: float,
    form: Form,
    precision: Precision,
) -> Iterator[Activation]:
    """The activations by gradient descent in one arithmetic, and what was first lost, if any was.

    Raises `InputError` for a start that the precision cannot write, and a descent that overflows.
    """
    dtype = DTYPES[precision]
    loss = Quadratic(example.loss.H, example.loss.minimum)
    loss.H = loss.H.to(dtype)
    loss.minimum = loss.minimum.to(dtype)
    log_scale = log10_scale * LOG10
    u, v = (torch.from_numpy(math.exp(log_scale) * w).to(dtype) for w in (example.u, example.v))
    if not (u.abs().min() > 0 and v.abs().min() > 0):
        raise InputError(
            f"log10_init_scale: wanted a start that {precision} can write, got 1e{log10_scale:g}"
        )
    method = f"{form} gradient descent, {precision}"
    was_lost = False
    states = descend(loss.gradient, u, v, learning_rate, form)
    states = while_finite(states, f"drop.learning_rate, {form}, {precision}")
    for state, above, changed in with_crossings(states, threshold):
        time = state.step * learning_rate / -log_scale
        for i in (above & changed).nonzero()[:, 0].tolist():
            sign = int(torch.sign(state.p[i]))
            yield Activation(method, log10_scale, i, sign, time, lost=False)
        if form == "plain" and state.step % EVERY == 0 and not was_lost:
            for i in lost(state).nonzero()[:, 0].tolist():
                was_lost = True
                yield Activation(method, log10_scale, i, 0, time, lost=True)
        if state.step >= n_steps:
            return
