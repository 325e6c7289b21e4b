"""Predict from the start alone: every stage, and how many directions an adapter learns.

The stages are those of Algorithm 1, which knows no scale, and of its finite-scale form. The adapter
fine-tunes a head that is trained already towards a teacher that differs in a few coordinates, by
diagonal pairs u ⊙ v that begin as LoRA does: u random, v = 0; at scale 1 as LoRA itself, whose u is
of order 1. Then |u² − v²| = u² is not small: every coordinate has its own c. What the adapter
learns is measured as well.
"""

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pandas as pd

from lib.files.files import sha256
from lib.files.inputs import read_as
from lib.files.params import Count, Interval, Name, Positive, read_params
from lib.gradual_rank.adapters import adapter_events, adapter_of, at_scales, limit_events
from lib.gradual_rank.flow import LogCoordinates, LogScale, Solver, Tolerance
from lib.gradual_rank.greedy import greedy, stage_rows
from lib.gradual_rank.own_losses import Named
from lib.gradual_rank.problems import loss_of, named
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.tables.predictions import EVENTS, FORECAST, LIMIT, STAGES
from lib.gradual_rank.tasks import read_head, read_problems, read_start, read_toy
from lib.training.devices import use_threads
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFolder, run


@dataclass(frozen=True)
class Problem:
    """What is predicted of a problem; `atol` and `curvature_share` where they are its own."""

    name: Name
    max_stages: Count
    forecast_scales: tuple[LogScale, ...]
    atol: Tolerance | None = None
    curvature_share: Annotated[float, Interval("(0, 1]")] | None = None
    loss: str | None = None
    gradient: str | None = None

    def __post_init__(self) -> None:
        named(self.loss, self.gradient)

    @property
    def own(self) -> Named | None:
        """The names of its loss where that is one's own."""
        return named(self.loss, self.gradient)

    def solver(self, common: Solver) -> Solver:
        """The common solver with the problem's own numbers."""
        own = {"atol": self.atol, "curvature_share": self.curvature_share}
        return replace(common, **{name: value for name, value in own.items() if value})


@dataclass(frozen=True)
class Greedy:
    stop_loss: Annotated[float, Interval("[0, 1)")]


@dataclass(frozen=True)
class Forecast:
    """An adapter: from which scales, how many coordinates its teacher changes, and until when."""

    log10_init_scales: tuple[Annotated[float, Interval("[-100, 0]")], ...]
    n_changed: Count
    rescaled_end: Positive


class Asked(NamedTuple):
    """What the stages of a problem depend on, but for their number."""

    task: str  # the digest of its file
    solver: Solver
    losses: Path | None
    own: Named | None


class Kind(NamedTuple):
    """What is computed together: the stages of a problem's seeds, or what the adapter learns."""

    what: Literal["stages", "forecast", "limit"]
    problem: str


FORECASTS = Kind("forecast", "")
LIMITS = Kind("limit", "")


def main(
    section: str,
    forecast: str,
    solver: str,
    studied: str,
    usual: str,
    problems: Path,
    tasks: Path,
    losses: Path,
    predictions: OutFolder,
) -> None:
    """Write each problem's `stages`, `events` of the finite-scale form, and the `forecast`."""
    use_threads(1)
    params = read_params(section, Greedy)
    adapter = read_params(forecast, Forecast)
    common = read_params(solver, Solver)
    base = tasks / f"{read_params(studied, str)}.safetensors"
    cases = read_problems(problems, Problem, usual)
    files = {problem.name: tasks / f"{problem.name}.safetensors" for problem in cases}
    toys = {name: read_as("a toy task", read_start, file) for name, file in files.items()}
    asked = {
        problem.name: Asked(
            sha256(files[problem.name]),
            problem.solver(common),
            losses if problem.own else None,
            problem.own,
        )
        for problem in cases
    }
    # Equal tasks have equal stages: the problem that wants the most has those of the others.
    by_stages = sorted(cases, key=lambda problem: problem.max_stages)
    longest = {asked[problem.name]: problem for problem in by_stages}
    jobs: dict[Kind, list[tuple]] = {}
    for one, problem in longest.items():
        given = (files[problem.name], problem.max_stages, params.stop_loss, one.solver)
        indices = range(len(toys[problem.name].seeds))
        jobs[Kind("stages", problem.name)] = [
            (predict, *given, index, one.losses, one.own) for index in indices
        ]
    n_seeds = len(read_as("a toy task", read_toy, base).seeds)
    jobs[FORECASTS] = [
        (fine_tune, base, adapter.n_changed, adapter.rescaled_end, common, index, scale)
        for scale, index in itertools.product(adapter.log10_init_scales, range(n_seeds))
    ]
    jobs[LIMITS] = [
        (in_the_limit, base, adapter.n_changed, params.stop_loss, common, index)
        for index in (range(n_seeds) if adapter.log10_init_scales else ())
    ]
    few_first = sorted(jobs, key=lambda kind: len(jobs[kind]))  # few seeds are of large problems
    found = spread_cells({kind: jobs[kind] for kind in few_first}, label=section, unit="run")
    events: dict[str, list[tuple]] = {}
    for problem in cases:
        name = problem.name
        own = asked[name]
        stages = joined(found[Kind("stages", longest[own].name)], "stages")
        stages = stages[stages["stage"] <= problem.max_stages].reset_index(drop=True)
        STAGES.write(stages, predictions / f"{name}_stages.parquet")
        lasts = stages.groupby("seed", sort=False)["time"].max().tolist()
        events[name] = [
            (foretell, files[name], last, scale, own.solver, index, own.losses, own.own)
            for (index, last), scale in itertools.product(enumerate(lasts), problem.forecast_scales)
        ]
    for name, parts in spread_cells(events, label=section, unit="forecast").items():
        EVENTS.write(EVENTS.frame(joined(parts, "events")), predictions / f"{name}_events.parquet")
    adapted = found[FORECASTS]
    limits = found[LIMITS]
    forecasts = FORECAST.frame([])
    if adapted:
        forecasts = joined(adapted, "forecast")
        ends = {
            scale: common.end(adapter.rescaled_end, scale * LOG10)
            for scale in adapter.log10_init_scales
        }
        by_limit = FORECAST.frame(at_scales(joined(limits, "limit"), ends))
        forecasts = pd.concat([forecasts, by_limit])
    FORECAST.write(forecasts.reset_index(drop=True), predictions / "forecast.parquet")


def predict(
    task: Path,
    max_stages: int,
    stop_loss: float,
    solver: Solver,
    index: int,
    losses: Path | None,
    own: Named | None,
) -> Tables:
    """One seed's stages by Algorithm 1."""
    toy = read_start(task)
    seed = int(toy.seeds[index])
    loss = loss_of(toy, index, losses, own)
    numbers = {"kick": solver.kick, "stationary": solver.stationary, **solver.on(loss)}
    stages = stage_rows(loss, greedy(loss, loss.size, **numbers), max_stages, stop_loss)
    return {"stages": STAGES.frame([{"seed": seed, **stage} for stage in stages])}


def foretell(
    task: Path,
    last: float,
    log10_init_scale: float,
    solver: Solver,
    index: int,
    losses: Path | None,
    own: Named | None,
) -> Tables:
    """The events of one seed from one scale by the finite-scale form of Algorithm 1.

    `last` is the time of the last stage, which says when the flow ends.
    """
    toy = read_start(task)
    loss = loss_of(toy, index, losses, own)
    log_scale = log10_init_scale * LOG10
    start = LogCoordinates.of(toy.u[index].numpy(), toy.v[index].numpy(), log_scale)
    cell = {"seed": int(toy.seeds[index]), "log10_init_scale": log10_init_scale}
    events = solver.predicted(loss, start, solver.end(last, log_scale))
    return {"events": EVENTS.frame([{**cell, **vars(event)} for event in events])}


def fine_tune(
    task: Path,
    n_changed: int,
    rescaled_end: float,
    solver: Solver,
    index: int,
    log10_init_scale: float,
) -> Tables:
    """The events of one seed's adapter from one scale, forecast and measured."""
    toy = read_head(task)
    log_scale = log10_init_scale * LOG10
    u = toy.u[index].numpy()
    start = LogCoordinates.of(u, np.zeros_like(u), log_scale)
    end = solver.end(rescaled_end, log_scale)
    events = adapter_events(adapter_of(toy, index, n_changed), start, end, solver)
    cell = {"seed": int(toy.seeds[index]), "log10_init_scale": log10_init_scale, "end": end}
    return {"forecast": FORECAST.frame([{**cell, **event} for event in events])}


def in_the_limit(
    task: Path, n_changed: int, stop_loss: float, solver: Solver, index: int
) -> Tables:
    """What joins and leaves in one seed's adapter by Algorithm 1, which knows no scale."""
    toy = read_head(task)
    seed = int(toy.seeds[index])
    events = limit_events(adapter_of(toy, index, n_changed), solver, stop_loss)
    return {"limit": LIMIT.frame([{"seed": seed, **event} for event in events])}


if __name__ == "__main__":
    run(main)
