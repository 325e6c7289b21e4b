"""Descend in three arithmetics beside the flow; an example where the plain one is lost; and u² − v²
along the flow of u and v themselves.
"""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from lib.files.files import InputError
from lib.files.inputs import read_as
from lib.files.params import Interval, Positive, Seed, Seeds, read_cases, read_params
from lib.gradual_rank.conserved import drift_along
from lib.gradual_rank.descent import Form, descend, drift, lost, while_finite, with_crossings
from lib.gradual_rank.diagonal_heads import DiagonalHead, Quadratic
from lib.gradual_rank.flow import (
    LogCoordinates,
    LogScale,
    Solver,
    Tolerance,
    log_flow,
    staged_flow,
    with_events,
)
from lib.gradual_rank.greedy import greedy
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.step_counts import steps_to
from lib.gradual_rank.tables.descents import CONSERVED, CROSSINGS, DROP, ENDS, FOLDER
from lib.gradual_rank.tables.predictions import STAGES
from lib.gradual_rank.tasks import gaussian_pair, read_head, read_toy
from lib.training.devices import generator, use_threads
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

RepresentableScale = Annotated[float, Interval("[-100, 0)")]
REST = 1e-6  # of the example: where its coordinates start, and when a stage is at rest
TOLERANCES: Any = {"rtol": 1e-6, "atol": 1e-4}  # of the example, which costs little
MAX_STEPS = 200_000


@dataclass(frozen=True)
class Variant:
    form: Form
    share_of_limit: Annotated[float, Interval("(0, 2]")]


@dataclass(frozen=True)
class Drop:
    coupling: Annotated[float, Interval("(0, 0.7]")]
    minimum: tuple[float, float, float]
    seed: Seed
    learning_rate: Positive
    log10_init_scale: RepresentableScale
    flow_log10_init_scales: tuple[LogScale, ...]
    rescaled_end: Positive

    def __post_init__(self) -> None:
        _ = self.n_steps  # not too many

    @property
    def n_steps(self) -> int:
        """The number of steps of the descents."""
        end = -self.log10_init_scale * LOG10 * self.rescaled_end
        return steps_to(end, self.learning_rate, "rescaled_end, learning_rate", most=MAX_STEPS)


@dataclass(frozen=True)
class Conserve(Seeds):
    """How u and v themselves are followed, to the time `end`, and how strongly v decays beside."""

    log10_init_scale: RepresentableScale
    end: Positive
    rtols: tuple[Tolerance, ...]
    decay: Positive

    def __post_init__(self) -> None:
        if len(self.rtols) < 2:
            raise ValueError(f"rtols: wanted two or more, got {list(self.rtols)}")


@dataclass(frozen=True)
class Descend(Seeds):
    log10_init_scale: RepresentableScale
    drop: Drop
    conserve: Conserve


def main(
    section: str, solver: str, variants: Path, task: Path, stages: Path, descents: OutFolder
) -> None:
    """Write `events` and `ends` of the descents, the `drop` example, and what is `conserved`."""
    use_threads(1)
    params = read_params(section, Descend)
    followed = read_params(solver, Solver)
    cases = read_cases(variants, Variant)
    toy = read_as("a toy task", read_toy, task)
    toy.places(params.seeds, section)
    toy.places(params.conserve.seeds, f"{section}.conserve")
    for variant in cases:
        rates_and_steps(stages, params, followed, variant)
    forms = [("plain", "float64"), ("plain", "float32"), ("factors", "float64")]
    jobs = {
        "heads": [(follow, task, stages, params, followed, variant) for variant in cases],
        "drop": [
            (predict_example, params.drop, followed.threshold),
            *((descend_example, params.drop, followed.threshold, *form) for form in forms),
        ],
        "conserved": [(conserve, task, params.conserve, seed) for seed in params.conserve.seeds],
    }
    found = spread_cells(jobs, label=section, unit="descent")
    every = [tables for alike in found.values() for tables in alike]
    write_joined(FOLDER, every, descents)


def conserve(task: Path, params: Conserve, seed: int) -> Tables:
    """How far u² − v² drifts in one seed, by tolerance, without decay and with it."""
    toy = read_head(task)
    (place,) = toy.places([seed], str(task))
    loss = DiagonalHead(toy.X[place], toy.Y[place])
    scale = math.exp(params.log10_init_scale * LOG10)
    start = (scale * toy.u[place]).numpy(), (scale * toy.v[place]).numpy()
    rows = []
    for decay, rtol in itertools.product((0.0, params.decay), params.rtols):
        drift, growth = drift_along(loss, *start, params.end, rtol, decay)
        cell = {"seed": seed, "rtol": rtol, "decay": decay}
        rows.append({**cell, "drift": drift, "growth": growth})
    return {"conserved": CONSERVED.frame(rows)}


def follow(task: Path, stages: Path, params: Descend, solver: Solver, variant: Variant) -> Tables:
    """One form of descent of all seeds side by side: when products cross the threshold, and how
    each ends.
    """
    toy = read_head(task)
    places = toy.places(params.seeds, str(task))
    loss = DiagonalHead(toy.X[places], toy.Y[places])
    scale = math.exp(params.log10_init_scale * LOG10)
    u = scale * toy.u[places]
    v = scale * toy.v[places]
    rates, n_steps = rates_and_steps(stages, params, solver, variant)
    cell = {**vars(variant), "log10_init_scale": params.log10_init_scale}
    states = descend(loss.gradient, u, v, torch.from_numpy(rates)[:, None], variant.form)
    states = while_finite(states, f"share_of_limit, {variant.form}")
    events: list[dict[str, Any]] = []
    ends: dict[int, dict[str, Any]] = {}
    for state, above, changed in with_crossings(states, solver.threshold):
        for row, i in changed.nonzero().tolist():
            if state.step <= n_steps[row]:
                event = {
                    **cell,
                    "seed": params.seeds[row],
                    "time": state.step * rates[row],
                    "coordinate": i,
                    "sign": int(torch.sign(state.p[row, i])),
                    "rises": bool(above[row, i]),
                }
                events.append(event)
        for row in np.flatnonzero(n_steps == state.step).tolist():
            ends[row] = {
                **cell,
                "seed": params.seeds[row],
                "learning_rate": rates[row],
                "drift": float(drift(state, variant.form, u, v)[row]),
            }
        if len(ends) == len(places):
            break
    return {
        "events": CROSSINGS.frame(events),
        "ends": ENDS.frame([ends[row] for row in sorted(ends)]),
    }


def rates_and_steps(
    stages: Path, params: Descend, solver: Solver, variant: Variant
) -> tuple[np.ndarray, np.ndarray]:
    """The learning rate of every seed, and the steps to the end of its last stage."""
    by_seed = STAGES.read(stages).groupby("seed")
    seeds = list(params.seeds)
    limits = by_seed["learning_rate_limit"].min().loc[seeds].to_numpy()
    if not np.isfinite(limits).all():
        raise InputError(
            f"{stages}: wanted seeds that have a stage with a limit of the learning rate, got "
            f"{limits}"
        )
    rates = variant.share_of_limit * limits
    share = f"share_of_limit {variant.share_of_limit:g}"
    log_scale = params.log10_init_scale * LOG10
    ends = [solver.end(last, log_scale) for last in by_seed["time"].max().loc[seeds]]
    n_steps = [
        steps_to(end, rate, share, most=MAX_STEPS)
        for end, rate in zip(ends, rates.tolist(), strict=True)
    ]
    return rates, np.array(n_steps)


def example(params: Drop) -> tuple[Quadratic, np.ndarray, np.ndarray]:
    """The quadratic in three coordinates whose third joins, leaves and joins again with the other
    sign; its start.
    """
    H = torch.eye(3, dtype=torch.float64)
    H[2, :2] = H[:2, 2] = params.coupling
    u, v = gaussian_pair(3, generator(params.seed, "start of the example"))
    return Quadratic(H, torch.tensor(params.minimum, dtype=torch.float64)), u.numpy(), v.numpy()


def predict_example(drop: Drop, threshold: float) -> Tables:
    """The example's activations by Algorithm 1, by its finite-scale form, and by the flow."""
    loss, u, v = example(drop)
    rows: list[tuple] = []

    def add(method: str, scale: float, joined: Any, unit: float) -> None:
        rows.append((method, scale, joined.coordinate, joined.sign, joined.time / unit, False))

    for stage in greedy(loss, 3, kick=REST, stationary=REST, **TOLERANCES):
        if stage.k:
            add("Algorithm 1", -math.inf, stage, 1.0)
    for scale in drop.flow_log10_init_scales:
        unit = -scale * LOG10
        start = LogCoordinates.of(u, v, -unit)
        end = unit * drop.rescaled_end
        numbers = {"threshold": threshold, "stationary": REST, "max_events": 100, **TOLERANCES}
        for event in staged_flow(loss, start, end, **numbers):
            if event.rises:
                add("finite-scale Algorithm 1", scale, event, unit)
        flow = log_flow(loss, start, end, **TOLERANCES)
        for _, events in with_events(flow, start, threshold):
            for event in events:
                if event.rises:
                    add("flow in log coordinates", scale, event, unit)
    return {"drop": DROP.frame(rows)}


def descend_example(drop: Drop, threshold: float, form: Form, precision: str) -> Tables:
    """The example's activations by gradient descent in one arithmetic; a row more says when it was
    lost, if it was.
    """
    loss, u, v = example(drop)
    dtype = {"float64": torch.float64, "float32": torch.float32}[precision]
    loss.H = loss.H.to(dtype)
    loss.minimum = loss.minimum.to(dtype)
    scale = drop.log10_init_scale
    log_scale = scale * LOG10
    first, second = (torch.from_numpy(math.exp(log_scale) * w).to(dtype) for w in (u, v))
    if not (first.abs().min() > 0 and second.abs().min() > 0):
        raise InputError(
            f"log10_init_scale: wanted a start that {precision} can write, got 1e{scale:g}"
        )
    rows: list[tuple] = []
    was_lost = False
    method = f"{form} gradient descent, {precision}"
    states = descend(loss.gradient, first, second, drop.learning_rate, form)
    states = while_finite(states, f"drop.learning_rate, {form}, {precision}")
    for state, above, changed in with_crossings(states, threshold):
        time = state.step * drop.learning_rate / -log_scale
        for i in (above & changed).nonzero()[:, 0].tolist():
            rows.append((method, scale, i, int(torch.sign(state.p[i])), time, False))
        if form == "plain" and state.step % 100 == 0 and not was_lost:
            for i in lost(state).nonzero()[:, 0].tolist():
                was_lost = True
                rows.append((method, scale, i, 0, time, True))
        if state.step >= drop.n_steps:
            break
    return {"drop": DROP.frame(rows)}


if __name__ == "__main__":
    run(main)
