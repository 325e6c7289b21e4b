"""Predict the stages of every seed: Algorithm 1, which knows no scale, and its finite-scale form from its start."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch

from lib.analysis.staircase import stability_limit, strong_minimum
from lib.data.gaussian_sequences import Toy, read_toy
from lib.dynamics.gradient_flow import LogCoordinates, staged_flow
from lib.dynamics.greedy import greedy
from lib.io.command import run
from lib.io.compute import available_cores, spread, use_threads
from lib.io.params import Count, Interval, Positive, read_params
from lib.io.tables import write_table
from lib.models.diagonal_attention import DiagonalHead

LogScale = Annotated[float, Interval("[-1000, 0)")]
Tolerance = Annotated[float, Interval("(0, 0.1]")]


@dataclass(frozen=True)
class Prediction:
    max_stages: Count
    stop_loss: Annotated[float, Interval("[0, 1)")]
    kick: Annotated[float, Interval("(1e-8, 1e-2]")]
    stationary: Tolerance
    rtol: Tolerance
    atol: Tolerance
    curvature_samples: Count
    log10_init_scales: tuple[LogScale, ...]
    threshold: Positive
    margin: Positive
    max_events: Count


@dataclass(frozen=True)
class Greedy:
    small: Prediction
    paper: Prediction


def main(section: str, tasks: Path, predictions: Path) -> None:
    """Write, for each problem, `stages` (Algorithm 1) and `events` (its finite-scale form)."""
    use_threads(1)
    params = vars(read_params(section, Greedy))
    files = {name: tasks / f"{name}.safetensors" for name in params}
    seeds = {name: len(read_toy(file).seeds) for name, file in files.items()}
    names = sorted(params, key=lambda name: seeds[name])  # few seeds are large ones: those first
    jobs = [(files[name], params[name], i) for name in names for i in range(seeds[name])]
    n_processes = available_cores()
    predicted = iter(list(spread(foretell, jobs, n_processes=n_processes, label=section, unit="seed")))
    for name in names:
        stages, events = zip(*(next(predicted) for _ in range(seeds[name])), strict=True)
        write_table(pd.concat(stages, ignore_index=True), predictions / f"{name}_stages.parquet")
        rows = [row for of_seed in events for row in of_seed]
        columns = ["seed", "log10_init_scale", "time", "coordinate", "sign", "rises"]
        write_table(pd.DataFrame(rows, columns=columns), predictions / f"{name}_events.parquet")


def foretell(task: Path, params: Prediction, index: int) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """One seed's stages by Algorithm 1, and the events of its finite-scale form from each scale."""
    toy = read_toy(task)
    stages = follow(toy, params, index)
    last = float(stages["time"].max())
    events = [predict(toy, params, index, scale, last) for scale in params.log10_init_scales]
    return stages, list(itertools.chain.from_iterable(events))


def problem(toy: Toy, index: int, n_samples: int) -> tuple[DiagonalHead, DiagonalHead]:
    """The loss of a seed, and the same on a share of its samples for the implicit solver's matrix."""
    X, Y = toy.X[index], toy.Y[index]
    return DiagonalHead(X, Y), DiagonalHead(X[:n_samples], Y[:n_samples])


def follow(toy: Toy, params: Prediction, index: int) -> pd.DataFrame:
    """A row a stage of one seed's Algorithm 1."""
    loss, curvature = problem(toy, index, params.curvature_samples)
    initial = float(loss.value(torch.zeros(loss.size, dtype=torch.float64)))
    rows: list[dict[str, Any]] = []
    found = greedy(
        loss,
        loss.size,
        kick=params.kick,
        stationary=params.stationary,
        rtol=params.rtol,
        atol=params.atol,
        curvature=curvature,
    )
    for stage in itertools.islice(found, params.max_stages + 1):
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
        if row["loss"] < params.stop_loss:
            break
    return pd.DataFrame(rows)


def predict(toy: Toy, params: Prediction, index: int, log10_init_scale: float, last: float) -> list[dict[str, Any]]:
    """The events of one seed's finite-scale Algorithm 1, from its start at one scale."""
    loss, curvature = problem(toy, index, params.curvature_samples)
    log_scale = log10_init_scale * math.log(10)
    start = LogCoordinates.of(toy.u[index].numpy(), toy.v[index].numpy(), log_scale)
    events = staged_flow(
        loss,
        start,
        last * (-log_scale + params.margin),
        threshold=params.threshold,
        stationary=params.stationary,
        rtol=params.rtol,
        atol=params.atol,
        max_events=params.max_events,
        curvature=curvature,
    )
    cell = {"seed": int(toy.seeds[index]), "log10_init_scale": log10_init_scale}
    return [{**cell, **vars(event)} for event in events]


if __name__ == "__main__":
    run(main)
