"""Predict from the start alone: the stages of every seed, and how many directions an adapter learns; measure these.

The stages are those of Algorithm 1, which knows no scale, and of its finite-scale form. The adapter fine-tunes a head
that is trained already, `base`, towards a teacher that differs in a few coordinates, by diagonal pairs u ⊙ v that begin
as LoRA does: u random, v = 0. Then |u² − v²| = u² is not small: every coordinate has its own c.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch

from lib.analysis.staircase import stability_limit, strong_minimum
from lib.data.gaussian_sequences import Toy, gaussian_pair, read_toy
from lib.dynamics.gradient_flow import Event, LogCoordinates, Solver, log_flow, staged_flow, with_events
from lib.dynamics.greedy import greedy
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread_kinds, use_threads
from lib.io.params import Count, Interval, Positive, read_params
from lib.io.tables import write_table
from lib.models.diagonal_attention import DiagonalHead, diagonal_head

LogScale = Annotated[float, Interval("[-1000, 0)")]


@dataclass(frozen=True)
class Problem:
    """What is predicted of a problem; `atol` where it is another than the solver's."""

    log10_init_scales: tuple[LogScale, ...]
    max_stages: Count
    atol: Annotated[float, Interval("(0, 0.1]")] | None = None


@dataclass(frozen=True)
class Greedy:
    small: Problem
    paper: Problem
    stop_loss: Annotated[float, Interval("[0, 1)")]


@dataclass(frozen=True)
class Forecast:
    """An adapter: from which scales, how many coordinates its teacher changes, and until when."""

    log10_init_scales: tuple[Annotated[float, Interval("[-100, 0)")], ...]
    n_changed: Count
    rescaled_end: Positive


def main(section: str, forecast: str, solver: str, tasks: Path, predictions: Path) -> None:
    """Write, for each problem, `stages` (Algorithm 1) and `events` (its finite-scale form), and the `forecast`."""
    use_threads(1)
    params, common = read_params(section, Greedy), read_params(solver, Solver)
    adapter = read_params(forecast, Forecast)
    problems = {"small": params.small, "paper": params.paper}
    files = {name: tasks / f"{name}.safetensors" for name in problems}
    seeds = {name: len(read_toy(file).seeds) for name, file in files.items()}
    names = sorted(problems, key=lambda name: seeds[name])  # few seeds are large ones: those first
    solvers = {name: replace(common, atol=problems[name].atol or common.atol) for name in names}
    jobs: dict[str, list[tuple]] = {
        name: [(foretell, files[name], problems[name], params.stop_loss, solvers[name], i) for i in range(seeds[name])]
        for name in names
    }
    cells = itertools.product(adapter.log10_init_scales, range(seeds["small"]))
    jobs["forecast"] = [(fine_tune, files["small"], adapter, common, i, scale) for scale, i in cells]
    found = spread_kinds(jobs, n_processes=available_cores(), label=section, unit="run")
    event = ["time", "coordinate", "sign", "rises"]
    for name in names:
        stages, events = zip(*found[name], strict=True)
        write_table(pd.concat(stages, ignore_index=True), predictions / f"{name}_stages.parquet")
        write_rows(events, ["seed", "log10_init_scale", *event], predictions / f"{name}_events.parquet")
    columns = ["seed", "log10_init_scale", "source", "time", "end", *event[1:]]
    write_rows(found["forecast"], columns, predictions / "forecast.parquet")


def write_rows(parts: Iterable[list[dict[str, Any]]], columns: list[str], path: Path) -> None:
    """One table of the rows of all parts; without rows, it has its columns."""
    write_table(pd.DataFrame(list(itertools.chain.from_iterable(parts)), columns=columns), path)


def foretell(
    task: Path, params: Problem, stop_loss: float, solver: Solver, index: int
) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """One seed's stages by Algorithm 1, and the events of its finite-scale form from each scale."""
    toy = read_toy(task)
    stages = follow(toy, params.max_stages, stop_loss, solver, index)
    last = float(stages["time"].max())
    events = [predict(toy, solver, index, scale, last) for scale in params.log10_init_scales]
    return stages, list(itertools.chain.from_iterable(events))


def follow(toy: Toy, max_stages: int, stop_loss: float, solver: Solver, index: int) -> pd.DataFrame:
    """One seed's Algorithm 1, one row per stage."""
    loss = DiagonalHead(toy.X[index], toy.Y[index])
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
            "dropped": list(stage.dropped),
            "learning_rate_limit": stability_limit(H, stage.p[on]),
            "strictness_products": in_products,
            "strictness_weights": in_weights,
            "p": stage.p,
            "support": stage.support,
        }
        rows.append(row)
        if row["loss"] < stop_loss:
            break
    return pd.DataFrame(rows)


def predict(toy: Toy, solver: Solver, index: int, log10_init_scale: float, last: float) -> list[dict[str, Any]]:
    """The events of one seed's finite-scale Algorithm 1, from its start at one scale."""
    loss = DiagonalHead(toy.X[index], toy.Y[index])
    log_scale = log10_init_scale * math.log(10)
    start = LogCoordinates.of(toy.u[index].numpy(), toy.v[index].numpy(), log_scale)
    events = staged(loss, start, solver.end(last, log_scale), solver)
    cell = {"seed": int(toy.seeds[index]), "log10_init_scale": log10_init_scale}
    return [{**cell, **vars(event)} for event in events]


def staged(loss: DiagonalHead, start: LogCoordinates, end: float, solver: Solver) -> Iterator[Event]:
    """The events of the finite-scale Algorithm 1."""
    return staged_flow(
        loss,
        start,
        end,
        threshold=solver.threshold,
        stationary=solver.stationary,
        rtol=solver.rtol,
        atol=solver.atol,
        max_events=solver.max_events,
        curvature=loss.on_share(solver.curvature_share),
    )


def fine_tune(
    task: Path, params: Forecast, solver: Solver, index: int, log10_init_scale: float
) -> list[dict[str, Any]]:
    """The events of one seed's adapter from one scale, forecast and measured."""
    toy = read_toy(task)
    seed, base, X = int(toy.seeds[index]), toy.teacher[index], toy.X[index]
    changed = torch.randperm(len(base), generator=generator(seed, "changed coordinates"))[: params.n_changed]
    w_u, w_v = gaussian_pair(len(base), generator(seed, "change"))
    target = base.index_add(0, changed, (w_u * w_v)[changed])
    loss = DiagonalHead(X, diagonal_head(X, target), base)
    log_scale = log10_init_scale * math.log(10)
    start = LogCoordinates.of(toy.u[index].numpy(), np.zeros(len(base)), log_scale)
    end = -log_scale * params.rescaled_end
    cell = {"seed": seed, "log10_init_scale": log10_init_scale, "end": end}
    rows = [{**cell, "source": "forecast", **vars(event)} for event in staged(loss, start, end, solver)]
    curvature = loss.on_share(solver.curvature_share)
    course = log_flow(loss, start, end, rtol=solver.rtol, atol=solver.atol, curvature=curvature)
    measured = with_events(course, start, solver.threshold)
    rows += [{**cell, "source": "measured", **vars(event)} for _, events in measured for event in events]
    return rows


if __name__ == "__main__":
    run(main)
