"""Train the head with full matrices by gradient descent; note when its first direction rises."""

import math
from dataclasses import dataclass, replace
from itertools import islice
from typing import Annotated

import numpy as np
import pandas as pd
import torch

from lib.files.params import Count, Interval, Positive, Seeds, read_params
from lib.files.runs import clear_runs, write_run
from lib.gradual_rank.full_heads import (
    FullHead,
    FullSizes,
    first_rise,
    full_descent,
    gaussian_factors,
    named,
    targets,
)
from lib.gradual_rank.growth import first_time
from lib.gradual_rank.runs import head_layout
from lib.gradual_rank.scales import LOG10
from lib.gradual_rank.step_counts import evenly, steps_to
from lib.gradual_rank.tables.full import RISES
from lib.gradual_rank.tasks import Samples, tokens_of
from lib.training.devices import use_threads
from lib.work.cells import Course, Saved, joined, spread_cells
from lib.work.command import OutFile, OutFolder, run
from lib.work.progress import advance


@dataclass(frozen=True)
class FullWeights(Seeds, FullSizes):
    n_samples: Samples
    log10_init_scales: tuple[Annotated[float, Interval("[-100, 0)")], ...]
    learning_rate: Positive
    rescaled_end: Positive
    n_snapshots: Annotated[int, Interval("[2, 10000]")]
    look_every: Count

    def __post_init__(self) -> None:
        if not self.log10_init_scales:
            raise ValueError("log10_init_scales: wanted at least one, got none")
        self.n_steps(min(self.log10_init_scales))  # which takes the most

    def n_steps(self, log10_init_scale: float) -> int:
        """The steps to the end, which is given in units of log(1 / init_scale)."""
        end = self.rescaled_end * -log10_init_scale * LOG10
        return steps_to(end, self.learning_rate, "rescaled_end, learning_rate")


def main(section: str, runs: OutFolder, rises: OutFile) -> None:
    use_threads(1)
    params = read_params(section, FullWeights)
    scales = sorted(params.log10_init_scales)  # the smallest, which take the most steps, first
    shared = replace(params, log10_init_scales=(0.0,))  # a scale that is added changes no other
    jobs = {"scales": [(train, shared, scale) for scale in scales]}
    clear_runs(runs)
    found = spread_cells(jobs, label=section, unit="step", size=FullWeights.n_steps)["scales"]
    trainings: dict[float, Course] = dict(zip(scales, found, strict=True))
    for scale in params.log10_init_scales:
        variant = f"log10_init_scale={scale:g}"
        rates = {"log10_init_scale": scale, "learning_rate": params.learning_rate}
        with write_run(runs, variant, head_layout(params.seeds, variant, **rates)) as writer:
            for weights, rows in trainings[scale].states:
                writer.add(weights, rows)
    tables = [trainings[scale].tables for scale in params.log10_init_scales]
    RISES.write(joined(tables, "rises"), rises)


def train(params: FullWeights, log10_init_scale: float) -> Course:
    """Gradient descent of all seeds, side by side, from one scale of the start."""
    d = params.d_model
    rate = params.learning_rate
    log_scale = log10_init_scale * LOG10
    X = tokens_of(params.seeds, params.n_samples, params.seq_len, d)
    unscaled = gaussian_factors(d, params.seeds, "full start")
    head = FullHead(X, targets(X, params.seeds, [d])[:, 0])
    initial, _, G = head.loss_and_gradients(*torch.zeros_like(unscaled[0]))
    start = {name: math.exp(log_scale) * w for name, w in named(unscaled).items()}
    last = params.n_steps(log10_init_scale)
    saved = set(evenly(params.n_snapshots, last))
    states: list[Saved] = []
    looks: list[float] = []
    largest: list[np.ndarray] = []
    for step in islice(full_descent(head, start, rate), last + 1):
        time = step.number * rate
        if step.number in saved:
            at = {"step": step.number, "time": time, "rescaled_time": time / -log_scale}
            shares = (step.loss / initial).tolist()
            rows = [
                {"seed": seed, **at, "loss": share}
                for seed, share in zip(params.seeds, shares, strict=True)
            ]
            states.append((step.weights, rows))
        if step.number % params.look_every == 0:
            looks.append(time)
            W_VO = step.weights["W_V"] @ step.weights["W_O"].mT
            largest.append(torch.linalg.svdvals(W_VO)[:, 0].numpy())
        advance()
    courses = np.stack(largest, 1)
    times = [first_time(np.array(looks), course, params.threshold) for course in courses]
    forecast = first_rise(G, unscaled, log_scale, params.threshold, rate)
    rises = pd.DataFrame({"seed": params.seeds, "log10_init_scale": log10_init_scale})
    rises = rises.assign(time=times, **{name: one.numpy() for name, one in forecast.items()})
    risen = rises[np.isfinite(times)].sort_values("time", ignore_index=True)
    return Course({"rises": risen}, states)


if __name__ == "__main__":
    run(main)
