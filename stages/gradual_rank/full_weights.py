"""Train the head with full matrices by gradient descent from several scales; note when its first
direction rises.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lib.files.files import InputError
from lib.files.params import Count, Interval, Positive, Seeds, read_params
from lib.files.runs import Layout, clear_runs, write_run
from lib.files.tables import write_table
from lib.gradual_rank.full_heads import FullHead, first_rise
from lib.gradual_rank.step_counts import evenly, steps_to
from lib.gradual_rank.tasks import gaussian_sequences
from lib.training.attention import PRODUCTS
from lib.training.devices import generator, use_threads
from lib.work.cells import Course, Saved, joined, spread_cells
from lib.work.command import OutFile, OutFolder, run
from lib.work.progress import advance

NAMES: tuple[str, ...] = ("W_K", "W_Q", "W_V", "W_O")


@dataclass(frozen=True)
class FullWeights(Seeds):
    n_samples: Annotated[int, Interval("[1, 1e6]")]
    seq_len: Annotated[int, Interval("[2, 1000]")]
    d_model: Annotated[int, Interval("[2, 1000]")]
    log10_init_scales: tuple[Annotated[float, Interval("[-100, 0)")], ...]
    learning_rate: Positive
    rescaled_end: Positive
    threshold: Positive
    n_snapshots: Annotated[int, Interval("[2, 10000]")]
    look_every: Count

    def __post_init__(self) -> None:
        if not self.log10_init_scales:
            raise ValueError("log10_init_scales: wanted at least one, got none")
        n_steps(self, min(self.log10_init_scales))  # which takes the most


def main(section: str, runs: OutFolder, rises: OutFile) -> None:
    use_threads(1)
    params = read_params(section, FullWeights)
    scales = sorted(params.log10_init_scales)  # the smallest, which take the most steps, first
    shared = replace(params, log10_init_scales=(0.0,))  # a scale that is added changes no other
    jobs = [(train, shared, scale) for scale in scales]
    found = spread_cells({"": jobs}, label=section, unit="step", size=n_steps)[""]
    trainings: dict[float, Course] = dict(zip(scales, found, strict=True))
    clear_runs(runs)
    for scale in params.log10_init_scales:
        publish(runs, params, scale, trainings[scale])
    tables = [trainings[scale].tables for scale in params.log10_init_scales]
    write_table(joined(tables, "rises"), rises)


def publish(runs: Path, params: FullWeights, log10_init_scale: float, training: Course) -> None:
    """Write the snapshots of all seeds from one scale as one run."""
    variant = f"log10_init_scale={log10_init_scale:g}"
    layout = Layout(
        family="gradual_rank",
        matrices={name: ["seed", "row", "col"] for name in NAMES},
        products=PRODUCTS,
        cell={
            "variant": variant,
            "log10_init_scale": log10_init_scale,
            "learning_rate": params.learning_rate,
        },
        seeds=list(params.seeds),
    )
    with write_run(runs, variant, layout) as writer:
        for weights, rows in training.states:
            writer.add(weights, rows)


def n_steps(params: FullWeights, log10_init_scale: float) -> int:
    """The steps to the end, which is given in units of log(1 / init_scale)."""
    end = params.rescaled_end * -log10_init_scale * math.log(10)
    return steps_to(end, params.learning_rate, "rescaled_end, learning_rate")


def train(params: FullWeights, log10_init_scale: float) -> Course:
    """Gradient descent of all seeds, side by side, from one scale of the start."""
    d = params.d_model
    rate = params.learning_rate
    log_scale = log10_init_scale * math.log(10)
    shape = params.n_samples, params.seq_len, d
    X = torch.stack(
        [gaussian_sequences(*shape, generator(seed, "tokens")) for seed in params.seeds]
    )
    teacher, unscaled = (
        dict(
            zip(
                NAMES,
                torch.stack(
                    [square_matrices(d, generator(seed, name)) for seed in params.seeds], 1
                ),
                strict=True,
            )
        )
        for name in ("full teacher", "full start")
    )
    products = [
        (teacher[a] @ teacher[b].mT) / d for a, b in PRODUCTS.values()
    ]  # entries of the factors N(0, 1/d)
    head = FullHead(X, torch.zeros_like(X))
    head.Y = head.output(*products)
    zero = torch.zeros(len(params.seeds), d, d, dtype=torch.float64)
    initial, _, G = head.loss_and_gradients(zero, zero)
    limit, finite, stepped = first_rise(
        G, unscaled["W_V"], unscaled["W_O"], log_scale, params.threshold, rate
    )
    W = {name: math.exp(log_scale) * w for name, w in unscaled.items()}
    last = n_steps(params, log10_init_scale)
    saved = set(evenly(params.n_snapshots, last))
    states: list[Saved] = []
    rises: list[dict[str, Any]] = []
    before = torch.full((len(params.seeds),), -math.inf)
    risen = [False] * len(params.seeds)
    for step in range(last + 1):
        W_KQ, W_VO = (W[a] @ W[b].mT for a, b in PRODUCTS.values())
        loss, g_KQ, g_VO = head.loss_and_gradients(W_KQ, W_VO)
        if not torch.isfinite(loss).all():
            raise InputError(
                f"learning_rate: wanted one with which descent stays finite, got {rate:g} (step "
                f"{step})"
            )
        if step in saved:
            times = {"step": step, "time": step * rate, "rescaled_time": step * rate / -log_scale}
            rows = [
                {"seed": seed, **times, "loss": float(one / start)}
                for seed, one, start in zip(params.seeds, loss, initial, strict=True)
            ]
            states.append(({name: w.clone() for name, w in W.items()}, rows))
        if step % params.look_every == 0:
            now = torch.linalg.svdvals(W_VO)[:, 0].log() - math.log(params.threshold)
            for i in np.flatnonzero(now.numpy() >= 0).tolist():
                if not risen[i]:
                    risen[i] = True
                    share = float(now[i] / (now[i] - before[i]))  # log σ₁ is linear in time here
                    rises.append(
                        {
                            "seed": params.seeds[i],
                            "log10_init_scale": log10_init_scale,
                            "time": (step - share * params.look_every) * rate,
                            "limit": float(limit[i]),
                            "finite": float(finite[i]),
                            "stepped": float(stepped[i]),
                        }
                    )
            before = now
        W = {
            "W_K": W["W_K"] + rate * g_KQ @ W["W_Q"],
            "W_Q": W["W_Q"] + rate * g_KQ.mT @ W["W_K"],
            "W_V": W["W_V"] + rate * g_VO @ W["W_O"],
            "W_O": W["W_O"] + rate * g_VO.mT @ W["W_V"],
        }
        advance()
    return Course({"rises": pd.DataFrame(rises)}, states)


def square_matrices(d: int, source: torch.Generator) -> Tensor:
    """Four d × d matrices of N(0, 1) entries."""
    return torch.randn(4, d, d, generator=source, dtype=torch.float64)


if __name__ == "__main__":
    run(main)
