"""Forecast how many directions an adapter has learned after a budget, from its start alone; and measure it.

A head that is trained already, `base`, is fine-tuned towards a teacher that differs in a few coordinates, by diagonal
pairs u ⊙ v that begin as LoRA does: u random, v = 0. Then |u² − v²| = u² is not small: every coordinate has its own c.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch

from lib.data.gaussian_sequences import gaussian_pair, read_toy
from lib.dynamics.gradient_flow import LogCoordinates, log_flow, staged_flow, with_events
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread, use_threads
from lib.io.params import Count, Interval, Positive, read_params
from lib.io.tables import write_table
from lib.models.diagonal_attention import DiagonalHead, diagonal_head

Tolerance = Annotated[float, Interval("(0, 0.1]")]


@dataclass(frozen=True)
class Forecast:
    log10_init_scales: tuple[Annotated[float, Interval("[-100, 0)")], ...]
    n_changed: Count
    rescaled_end: Positive
    threshold: Positive
    stationary: Tolerance
    rtol: Tolerance
    atol: Tolerance
    curvature_samples: Count
    max_events: Count


def main(section: str, task: Path, events: Path) -> None:
    use_threads(1)
    params = read_params(section, Forecast)
    n_seeds = len(read_toy(task).seeds)
    jobs = [(task, params, i, scale) for scale in params.log10_init_scales for i in range(n_seeds)]
    found = spread(fine_tune, jobs, n_processes=available_cores(), label=section, unit="run")
    columns = ["seed", "log10_init_scale", "source", "time", "end", "coordinate", "sign", "rises"]
    write_table(pd.DataFrame([row for rows in found for row in rows], columns=columns), events)


def fine_tune(task: Path, params: Forecast, index: int, log10_init_scale: float) -> list[dict[str, Any]]:
    """The forecast events and the measured ones of one seed and scale."""
    toy = read_toy(task)
    seed, base, X = int(toy.seeds[index]), toy.teacher[index], toy.X[index]
    changed = torch.randperm(len(base), generator=generator(seed, "changed coordinates"))[: params.n_changed]
    w_u, w_v = gaussian_pair(len(base), generator(seed, "change"))
    target = base.index_add(0, changed, (w_u * w_v)[changed])
    Y, n = diagonal_head(X, target), params.curvature_samples
    loss, curvature = DiagonalHead(X, Y, base), DiagonalHead(X[:n], Y[:n], base)
    log_scale = log10_init_scale * math.log(10)
    start = LogCoordinates.of(toy.u[index].numpy(), np.zeros(len(base)), log_scale)
    end = -log_scale * params.rescaled_end
    cell = {"seed": seed, "log10_init_scale": log10_init_scale, "end": end}
    tolerances = {"rtol": params.rtol, "atol": params.atol, "curvature": curvature}
    predicted = staged_flow(
        loss,
        start,
        end,
        threshold=params.threshold,
        stationary=params.stationary,
        max_events=params.max_events,
        **tolerances,
    )
    rows = [{**cell, "source": "forecast", **vars(event)} for event in predicted]
    measured = with_events(log_flow(loss, start, end, **tolerances), start, params.threshold)
    rows += [{**cell, "source": "measured", **vars(event)} for _, events in measured for event in events]
    return rows


if __name__ == "__main__":
    run(main)
