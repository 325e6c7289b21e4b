"""Train low-rank adapters (LoRA) of rank r on all four matrices, from the same start and data as the full trainings."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from torch import Tensor

from lib.data.patterns import epochs, read_patterns
from lib.dynamics.gradient_descent import gradient_descent
from lib.io.command import run
from lib.io.compute import advance, available_cores, generator, spread, use_device
from lib.io.files import InputError
from lib.io.params import Count, Interval, Name, Positive, Seed, read_params
from lib.io.runs import open_run
from lib.io.tables import write_table
from lib.models.adapters import adapter_gradient, initial_adapter
from lib.models.one_layer_vit import MATRICES, Weights, loss_gradient, score


@dataclass(frozen=True)
class Adaptation:
    """Adapters for one configuration of the trainings, with the same step size and number of steps."""

    configuration: Name
    learning_rate: Positive
    n_steps: Annotated[int, Interval("[1, 1e6]")]
    ranks: tuple[Annotated[int, Interval("[1, 16384]")], ...]
    seeds: tuple[Seed, ...]


@dataclass(frozen=True)
class Adapt:
    device: Literal["cpu", "cuda"]
    adaptations: tuple[Adaptation, ...]
    batch_size: Count
    fitted_loss: Positive

    def jobs(self) -> Iterator[tuple[Adaptation, int, int]]:
        for adaptation in self.adaptations:
            for rank in adaptation.ranks:
                for seed in adaptation.seeds:
                    yield adaptation, rank, seed


def main(section: str, dataset: Path, runs: Path, table: Path) -> None:
    params = read_params(section, Adapt)
    use_device(params.device)
    jobs = list(params.jobs())
    rows = spread(
        adapt_seed,
        [(dataset, runs / job[0].configuration, params, *job) for job in jobs],
        n_processes=1 if params.device == "cuda" else available_cores(),
        total=sum(adaptation.n_steps for adaptation, _, _ in jobs),
        label=section,
    )
    write_table(pd.DataFrame(list(rows)), table)


def adapt_seed(
    dataset: Path, folder: Path, params: Adapt, adaptation: Adaptation, rank: int, seed: int
) -> dict[str, str | float]:
    """Train the adapters of one rank from one seed; a row of what came of it."""
    device = use_device(params.device)
    opened = open_run(folder)
    if seed not in opened.layout.seeds:
        raise InputError(f"seeds: wanted seeds of {folder}, {opened.layout.seeds}, got {seed}")
    initial = {name: W[opened.layout.seeds.index(seed)].to(device) for name, W in opened.weights(0).items()}
    try:
        _, train, test = read_patterns(dataset).of(seed)
        order = generator(seed, "order")
        feed = list(epochs(len(train.labels), params.batch_size, adaptation.n_steps, order))
    except ValueError as error:
        raise InputError(str(error)) from error
    train, test, readout = train.to(device), test.to(device), initial.pop("readout")
    start: Weights = {}
    for name in MATRICES:
        n_out, n_in = in_paper(initial, name).shape
        A, B = initial_adapter(n_in, n_out, rank, generator(seed, "adapter", name))
        start |= {f"A {name}": A.to(device), f"B {name}": B.to(device)}

    def slope(adapters: Weights, index: Tensor) -> tuple[Tensor, Weights]:
        index = index.to(device)
        loss, slopes = loss_gradient(adapted(initial, adapters), readout, train.tokens[index], train.labels[index])
        found: Weights = {}
        for name in MATRICES:
            A, B = adapter_gradient(adapters[f"A {name}"], adapters[f"B {name}"], in_paper(slopes, name))
            found |= {f"A {name}": A, f"B {name}": B}
        return loss, found

    final, fitted = start, -1
    for step in gradient_descent(slope, start, adaptation.learning_rate, ((i,) for i in feed)):
        if fitted < 0 and step.loss < params.fitted_loss:
            fitted = step.number
        final = step.after
        advance()
    found = score(adapted(initial, final), readout, test.tokens, test.labels, test.is_relevant)
    cell = {"configuration": adaptation.configuration, "rank": rank, "seed": seed, "fitted_step": fitted}
    return cell | {name: value.item() for name, value in found.items()}


def in_paper(weights: Weights, name: str) -> Tensor:
    """A matrix the paper's way, out × in: W_O is kept so, the others transposed."""
    return weights[name] if name == "W_O" else weights[name].mT


def adapted(initial: Weights, adapters: Weights) -> Weights:
    """The weights W(0) + B A, as they are kept."""
    updates = {name: adapters[f"B {name}"] @ adapters[f"A {name}"] for name in MATRICES}
    return {name: initial[name] + in_paper(updates, name) for name in MATRICES}


if __name__ == "__main__":
    run(main)
