"""Descend in three arithmetics beside the flow; an example where the plain one is lost; and u² − v²
along the flow of u and v themselves.
"""

import itertools
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch

from lib.files.inputs import read_as
from lib.files.params import Interval, Positive, Seed, Seeds, read_cases, read_params
from lib.gradual_rank.conserved import drift_along
from lib.gradual_rank.descent import (
    Form,
    crossings,
    descend,
    drift,
    while_finite,
    with_crossings,
)
from lib.gradual_rank.diagonal_heads import DiagonalHead
from lib.gradual_rank.flow import LogScale, Solver, Tolerance
from lib.gradual_rank.learning_rates import rates_and_steps
from lib.gradual_rank.rejoining import (
    Precision,
    descended_joins,
    predicted_joins,
    rejoining,
)
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.step_counts import steps_to
from lib.gradual_rank.tables.descents import CONSERVED, CROSSINGS, DROP, ENDS, FOLDER
from lib.gradual_rank.tables.predictions import STAGES
from lib.gradual_rank.tasks import read_head, read_toy
from lib.training.devices import use_threads
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFolder, run
from lib.work.schemas import write_joined

RepresentableScale = Annotated[float, Interval("[-100, 0)")]
MAX_STEPS = 200_000
# the example by what predicts it, and by descent in three arithmetics
METHODS: tuple[tuple[Form, Precision] | None, ...] = (
    None,
    ("plain", "float64"),
    ("plain", "float32"),
    ("factors", "float64"),
)


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
    descended = partial(
        rates_and_steps,
        STAGES.read(stages),
        params.seeds,
        log_scale=params.log10_init_scale * LOG10,
        solver=followed,
        most=MAX_STEPS,
        file=stages,
    )
    threshold = followed.threshold
    jobs = {
        "heads": [
            (follow, task, params, threshold, one, *descended(one.share_of_limit)) for one in cases
        ],
        "drop": [(follow_example, params.drop, threshold, method) for method in METHODS],
        "conserved": [(conserve, task, params.conserve, seed) for seed in params.conserve.seeds],
    }
    found = spread_cells(jobs, label=section, unit="descent")
    every = [tables for alike in found.values() for tables in alike]
    write_joined(FOLDER, every, descents)


def follow(
    task: Path,
    params: Descend,
    threshold: float,
    variant: Variant,
    rates: list[float],
    n_steps: list[int],
) -> Tables:
    """One form of descent of all seeds side by side: when products cross the threshold, and how
    each ends.
    """
    toy = read_head(task)
    places = toy.places(params.seeds, str(task))
    loss = DiagonalHead(toy.X[places], toy.Y[places])
    scale = math.exp(params.log10_init_scale * LOG10)
    u = scale * toy.u[places]
    v = scale * toy.v[places]
    cell = {**vars(variant), "log10_init_scale": params.log10_init_scale}
    each = torch.tensor(rates, dtype=torch.float64)[:, None]
    states = descend(loss.gradient, u, v, each, variant.form)
    states = while_finite(states, f"share_of_limit, {variant.form}")
    events: list[dict[str, Any]] = []
    ends: dict[int, dict[str, Any]] = {}
    for state, above, changed in with_crossings(states, threshold):
        for [row], crossing in crossings(state, above, changed):
            if state.step <= n_steps[row]:
                time = state.step * rates[row]
                events.append({**cell, "seed": params.seeds[row], "time": time, **crossing})
        for row, last in enumerate(n_steps):
            if state.step == last:
                off = float(drift(state, variant.form, u, v)[row])
                end = {"seed": params.seeds[row], "learning_rate": rates[row], "drift": off}
                ends[row] = {**cell, **end}
        if len(ends) == len(places):
            break
    return {
        "events": CROSSINGS.frame(events),
        "ends": ENDS.frame([ends[row] for row in sorted(ends)]),
    }


def follow_example(
    drop: Drop, threshold: float, arithmetic: tuple[Form, Precision] | None
) -> Tables:
    """The example's activations by what predicts them, or by descent in one arithmetic."""
    example = rejoining(drop.coupling, drop.minimum, drop.seed)
    if arithmetic is None:
        scales = drop.flow_log10_init_scales
        joins = predicted_joins(example, scales, drop.rescaled_end, threshold)
    else:
        form, precision = arithmetic
        joins = descended_joins(
            example,
            drop.log10_init_scale,
            drop.learning_rate,
            drop.n_steps,
            threshold,
            form,
            precision,
        )
    return {"drop": DROP.frame([*joins])}


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


if __name__ == "__main__":
    run(main)
