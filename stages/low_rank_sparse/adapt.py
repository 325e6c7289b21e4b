"""Train low-rank adapters (LoRA) on all four matrices, with the full trainings' starts and data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import torch
from torch import Tensor

from lib.files.files import InputError
from lib.files.params import Count, Interval, Name, Positive, Seeds, Steps, read_cases, read_params
from lib.files.runs import open_run
from lib.low_rank_sparse.adapters import adapted, adapters_gradient, initial_adapters
from lib.low_rank_sparse.configurations import COLUMNS, named
from lib.low_rank_sparse.one_layer import SampleLoss, Weights, numbers, score
from lib.low_rank_sparse.patterns import epochs, read_patterns
from lib.low_rank_sparse.tables.adapted import ADAPT
from lib.training.devices import generator, use_device
from lib.training.gradient_descent import gradient_descent, last_and_fitted, until_rest
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run


@dataclass(frozen=True)
class Training:
    """The params that are read from the trainings' section."""

    device: Literal["cpu", "cuda"]
    batch_size: Count
    learning_rate: Positive
    n_steps: Steps
    fitted_loss: Positive


@dataclass(frozen=True)
class Configuration:
    """The columns that are read from a configuration of the trainings."""

    name: Name
    learning_rate: Positive
    n_steps: Steps


@dataclass(frozen=True)
class Adaptation(Seeds):
    """Adapters for one configuration, with the same step size and number of steps."""

    configuration: str
    ranks: tuple[Annotated[int, Interval("[1, 16384]")], ...]


def main(
    section: str,
    training: str,
    configurations: Path,
    adaptations: Path,
    dataset: Path,
    runs: Path,
    table: OutFile,
) -> None:
    params = read_params(training, Training, part=True)
    seeds = read_params(section, Seeds)
    listed = read_cases(configurations, Configuration, columns=COLUMNS, shared=vars(params))
    known = {one.name: one for one in listed}
    use_device(params.device)
    wanted = read_cases(adaptations, Adaptation, shared=vars(seeds))
    read_patterns(dataset)  # which refuses another file
    jobs: list[tuple] = []
    for adaptation in wanted:
        way = named(known, adaptation.configuration, str(adaptations))
        folder = runs / way.name
        trained = open_run(folder, "low_rank_sparse").layout.seeds
        if not set(adaptation.seeds) <= set(trained):
            said = f"wanted seeds of {folder}, {trained}"
            raise InputError(f"seeds: {said}, got {list(adaptation.seeds)}")
        jobs += [
            (adapt_seed, dataset, folder, params, way, rank, seed)
            for rank in adaptation.ranks
            for seed in adaptation.seeds
        ]
    parts = spread_cells({"": jobs}, device=params.device, label="adapters", unit="adapter")[""]
    ADAPT.write(joined(parts, "adapters"), table)


@torch.inference_mode()
def adapt_seed(
    dataset: Path, folder: Path, params: Training, way: Configuration, rank: int, seed: int
) -> Tables:
    """Train the adapters of one rank from one seed, and give a row of what came of it."""
    device = use_device(params.device)
    opened = open_run(folder, "low_rank_sparse")
    number = opened.layout.seeds.index(seed)
    initial = {name: W[number].to(device) for name, W in opened.weights(0).items()}
    readout = initial.pop("readout")
    _, train, test = read_patterns(dataset).of(seed)
    train = train.to(device)
    test = test.to(device)
    loss = SampleLoss(readout, train.tokens, train.labels)

    def gradient(adapters: Weights, index: Tensor) -> tuple[Tensor, Weights]:
        value, slopes = loss.gradient(adapted(initial, adapters), index)
        return value, adapters_gradient(adapters, slopes)

    def at_rest(adapters: Weights) -> bool:
        return loss.at_rest(adapted(initial, adapters))

    n_samples = len(train.labels)
    batches = epochs(n_samples, params.batch_size, way.n_steps, generator(seed, "order"))
    feed = ((index.to(device),) for index in batches)
    start = initial_adapters(initial, rank, lambda name: generator(seed, "adapter", name))
    steps = gradient_descent(gradient, start, way.learning_rate, feed)
    steps = until_rest(steps, at_rest, n_samples // params.batch_size)
    final, fitted = last_and_fitted(steps, start, params.fitted_loss)
    model = adapted(initial, final)
    scores = numbers(score(model, readout, test.tokens, test.labels, test.is_relevant))
    row = {"configuration": way.name, "rank": rank, "seed": seed, "fitted_step": fitted, **scores}
    return {"adapters": pd.DataFrame([row])}


if __name__ == "__main__":
    run(main)
