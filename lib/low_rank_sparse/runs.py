"""Runs of configurations: seeds that are trained together, how they begin, and what is written."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from lib.files.runs import Layout, write_run
from lib.low_rank_sparse.configurations import Configuration
from lib.low_rank_sparse.one_layer import MATRICES, initial_weights, random_readout
from lib.training.attention import PRODUCTS
from lib.training.devices import generator
from lib.work.cells import Course


def chunks(way: Configuration, n: int) -> Iterator[Configuration]:
    """The configuration with each chunk of at most n seeds, which are trained together."""
    for first in way.seeds[::n]:
        n_left = way.first_seed + way.n_seeds - first
        yield replace(way, first_seed=first, n_seeds=min(n, n_left))


def initial_states(
    configuration: Configuration,
    *,
    seq_len: int,
    d_model: int,
    n_neurons: int,
    init_scale: float,
    value_error: float,
    query_key_error: float,
) -> dict[str, Tensor]:
    """The initial weights and the fixed readout of the seeds, stacked."""
    drawn: list[dict[str, Tensor]] = []
    for seed in configuration.seeds:
        weights = initial_weights(
            d_model,
            n_neurons,
            init_scale,
            generator(seed, "weights"),
            value_error=value_error,
            query_key_error=query_key_error,
        )
        readout = random_readout(
            configuration.readout, 1, seq_len, n_neurons, generator(seed, "readout")
        )
        drawn.append(weights | {"readout": readout})
    return {name: torch.stack([weights[name] for weights in drawn]) for name in drawn[0]}


def losses_of(losses: Tensor, configuration: Configuration) -> pd.DataFrame:
    """The training loss of each batch before its step, one row per step and seed."""
    columns = {"configuration": configuration.name, "step": range(len(losses))}
    return pd.concat(
        [
            pd.DataFrame({**columns, "seed": seed, "loss": of_seed})
            for seed, of_seed in zip(configuration.seeds, losses.cpu().numpy().T, strict=True)
        ]
    )


def write_configuration(runs: Path, configuration: Configuration, courses: list[Course]) -> None:
    """Write all seeds of one configuration as one run."""
    layout = Layout(
        family="low_rank_sparse",
        matrices={name: ["seed", *axes] for name, axes in MATRICES.items()},
        products=PRODUCTS,
        cell={
            "configuration": configuration.name,
            "readout": configuration.readout,
            "labels": configuration.labels,
        },
        seeds=list(configuration.seeds),
    )
    with write_run(runs, configuration.name, layout) as run:
        for states in zip(*(course.states for course in courses), strict=True):
            weights = {name: torch.cat([of[name] for of, _ in states]) for name in states[0][0]}
            run.add(weights, [row for _, rows in states for row in rows])
