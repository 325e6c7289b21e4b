"""Predict from the start alone: the stages of every seed, and how many directions an adapter
learns; measure these.

The stages are those of Algorithm 1, which knows no scale, and of its finite-scale form. The adapter
fine-tunes a head that is trained already, `base`, towards a teacher that differs in a few
coordinates, by diagonal pairs u ⊙ v that begin as LoRA does: u random, v = 0; at scale 1 as LoRA
itself, whose u is of order 1. Then |u² − v²| = u² is not small: every coordinate has its own c.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch

from lib.files.files import InputError
from lib.files.inputs import read_as
from lib.files.params import Count, Interval, Name, Positive, read_params
from lib.files.tables import write_table
from lib.gradual_rank.diagonal_heads import (
    DiagonalHead,
    DiagonalTransformer,
    diagonal_head,
    diagonal_network,
)
from lib.gradual_rank.flow import (
    Event,
    LogCoordinates,
    Solver,
    event_table,
    log_flow,
    staged_flow,
    with_events,
)
from lib.gradual_rank.greedy import greedy
from lib.gradual_rank.staircase import stability_limit, strong_minimum
from lib.gradual_rank.tasks import Toy, gaussian_pair, read_problems, read_toy
from lib.training.devices import generator, use_threads
from lib.work.cells import Job, Tables, joined, spread_cells
from lib.work.command import OutFolder, run

LogScale = Annotated[float, Interval("[-1000, 0)")]
CELL = {"seed": int, "log10_init_scale": float}
ADAPTER = CELL | {"source": str, "end": float}


@dataclass(frozen=True)
class Problem:
    """What is predicted of a problem; `atol` and `curvature_share` where they are others than the
    solver's.
    """

    name: Name
    max_stages: Count
    forecast_scales: tuple[LogScale, ...]
    atol: Annotated[float, Interval("(0, 0.1]")] | None = None
    curvature_share: Annotated[float, Interval("(0, 1]")] | None = None


@dataclass(frozen=True)
class Greedy:
    stop_loss: Annotated[float, Interval("[0, 1)")]


@dataclass(frozen=True)
class Forecast:
    """An adapter: from which scales, how many coordinates its teacher changes, and until when."""

    log10_init_scales: tuple[Annotated[float, Interval("[-100, 0]")], ...]
    n_changed: Count
    rescaled_end: Positive


def main(
    section: str,
    forecast: str,
    solver: str,
    studied: str,
    usual: str,
    problems: Path,
    tasks: Path,
    predictions: OutFolder,
) -> None:
    """Write, for each problem, `stages` (Algorithm 1) and `events` (its finite-scale form), and the
    `forecast`.
    """
    use_threads(1)
    params = read_params(section, Greedy)
    adapter = read_params(forecast, Forecast)
    common = read_params(solver, Solver)
    jobs: dict[str, list[Job]] = {}
    for problem in read_problems(problems, Problem, usual):
        file = tasks / f"{problem.name}.safetensors"
        own = {"atol": problem.atol, "curvature_share": problem.curvature_share}
        used = replace(common, **{name: value for name, value in own.items() if value})
        how = (problem.max_stages, problem.forecast_scales, params.stop_loss, used)
        seeds = range(len(read_as("a toy task", read_toy, file).seeds))
        jobs[problem.name] = [(foretell, file, *how, i) for i in seeds]
    base = tasks / f"{read_params(studied, str)}.safetensors"
    seeds = range(len(read_as("a toy task", read_toy, base).seeds))
    how = (adapter.n_changed, adapter.rescaled_end, common)
    adapters = [
        (fine_tune, base, *how, i, scale) for scale in adapter.log10_init_scales for i in seeds
    ]
    few_first = sorted(jobs, key=lambda name: len(jobs[name]))  # few seeds are large ones
    ordered = {name: jobs[name] for name in few_first} | {"forecast": adapters}
    found = spread_cells(ordered, label=section, unit="run")
    for name in jobs:
        for table in ("stages", "events"):
            write_table(joined(found[name], table), predictions / f"{name}_{table}.parquet")
    forecasts = joined(found["forecast"], "forecast") if adapters else event_table([], **ADAPTER)
    write_table(forecasts, predictions / "forecast.parquet")


def foretell(
    task: Path,
    max_stages: int,
    scales: tuple[float, ...],
    stop_loss: float,
    solver: Solver,
    index: int,
) -> Tables:
    """One seed's stages by Algorithm 1, and the events of its finite-scale form from each scale."""
    toy = read_toy(task)
    stages = follow(toy, max_stages, stop_loss, solver, index)
    last = float(stages["time"].max())
    events = [event for scale in scales for event in predict(toy, solver, index, scale, last)]
    return {"stages": stages, "events": event_table(events, **CELL)}


def follow(toy: Toy, max_stages: int, stop_loss: float, solver: Solver, index: int) -> pd.DataFrame:
    """One seed's Algorithm 1, one row per stage."""
    loss = diagonal_network(**toy.network(index))
    initial = float(loss.value(torch.zeros(loss.size, dtype=torch.float64)))
    rows: list[dict[str, Any]] = []
    found = greedy(
        loss,
        loss.size,
        kick=solver.kick,
        stationary=solver.stationary,
        rtol=solver.rtol,
        atol=solver.atol,
        curvature=loss.on_share(solver.curvature_share),
    )
    for stage in itertools.islice(found, max_stages + 1):
        on = np.flatnonzero(stage.support)
        p = torch.from_numpy(stage.p)
        H = loss.hessian(p, torch.from_numpy(on)).numpy()[on]
        in_products, in_weights = strong_minimum(H, stage.p[on])
        row = {
            "seed": int(toy.seeds[index]),
            "stage": stage.k,
            "time": stage.time,
            "next_time": stage.next_time,
            "gap": stage.gap,
            "coordinate": stage.coordinate,
            "sign": stage.sign,
            "loss": float(loss.value(p)) / initial,
            "residual": stage.residual,
            "n_active": len(on),
            "dropped": np.array(stage.dropped, np.int64),
            "n_dropped": len(stage.dropped),
            "learning_rate_limit": stability_limit(H, stage.p[on]),
            "strictness_products": in_products,
            "strictness_weights": in_weights,
            "g": stage.g,
            "charge": stage.charge,
            "p": stage.p,
            "support": stage.support,
        }
        rows.append(row)
        if row["loss"] < stop_loss:
            break
    return pd.DataFrame(rows)


def predict(
    toy: Toy, solver: Solver, index: int, log10_init_scale: float, last: float
) -> list[dict[str, Any]]:
    """The events of one seed's finite-scale Algorithm 1, from its start at one scale."""
    loss = diagonal_network(**toy.network(index))
    log_scale = log10_init_scale * math.log(10)
    start = LogCoordinates.of(toy.u[index].numpy(), toy.v[index].numpy(), log_scale)
    events = staged(loss, start, solver.end(last, log_scale), solver)
    cell = {"seed": int(toy.seeds[index]), "log10_init_scale": log10_init_scale}
    return [{**cell, **vars(event)} for event in events]


def staged(
    loss: DiagonalHead | DiagonalTransformer, start: LogCoordinates, end: float, solver: Solver
) -> Iterator[Event]:
    """The events of the finite-scale Algorithm 1."""
    return staged_flow(
        loss, start, end, curvature=loss.on_share(solver.curvature_share), **solver.of_stages
    )


def fine_tune(
    task: Path,
    n_changed: int,
    rescaled_end: float,
    solver: Solver,
    index: int,
    log10_init_scale: float,
) -> Tables:
    """The events of one seed's adapter from one scale, forecast and measured."""
    toy = read_toy(task)
    if toy.frames is not None:
        raise InputError(f"{task}: wanted a problem of one head to adapt, got a transformer")
    seed = int(toy.seeds[index])
    base = toy.teacher[index]
    X = toy.X[index]
    changed = torch.randperm(len(base), generator=generator(seed, "changed coordinates"))[
        :n_changed
    ]
    w_u, w_v = gaussian_pair(len(base), generator(seed, "change"))
    target = base.index_add(0, changed, (w_u * w_v)[changed])
    loss = DiagonalHead(X, diagonal_head(X, target), base)
    log_scale = log10_init_scale * math.log(10)
    start = LogCoordinates.of(toy.u[index].numpy(), np.zeros(len(base)), log_scale)
    end = solver.end(rescaled_end, log_scale)
    cell = {"seed": seed, "log10_init_scale": log10_init_scale, "end": end}
    rows = [
        {**cell, "source": "forecast", **vars(event)} for event in staged(loss, start, end, solver)
    ]
    curvature = loss.on_share(solver.curvature_share)
    course = log_flow(loss, start, end, rtol=solver.rtol, atol=solver.atol, curvature=curvature)
    measured = with_events(course, start, solver.threshold)
    rows += [
        {**cell, "source": "measured", **vars(event)} for _, events in measured for event in events
    ]
    return {"forecast": event_table(rows, **ADAPTER)}


if __name__ == "__main__":
    run(main)
