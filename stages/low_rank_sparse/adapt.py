"""Train low-rank adapters (LoRA) of rank r on all four matrices, from the same start and data as
the full trainings.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
from torch import Tensor

from lib.files.files import InputError
from lib.files.inputs import read_header
from lib.files.memory import COPIES, check_disk, check_memory
from lib.files.params import Count, Interval, Name, Positive, Seeds, Steps, read_cases, read_params
from lib.files.runs import FIRST_SNAPSHOT, open_run
from lib.files.tables import write_table
from lib.low_rank_sparse.adapters import adapter_gradient, initial_adapter
from lib.low_rank_sparse.grids import CONFIGURATION
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    Weights,
    at_rest,
    loss_gradient,
    scores,
    training_memory,
)
from lib.low_rank_sparse.patterns import PATTERNS, epochs, read_patterns
from lib.training.devices import generator, use_device
from lib.training.gradient_descent import gradient_descent, until_rest
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run
from lib.work.progress import advance


@dataclass(frozen=True)
class Training:
    """What is read of the trainings' section."""

    device: Literal["cpu", "cuda"]
    batch_size: Count
    learning_rate: Positive
    n_steps: Steps
    fitted_loss: Positive


@dataclass(frozen=True)
class Configuration:
    """What is read of a configuration of the trainings."""

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
    params, seeds = read_params(training, Training, part=True), read_params(section, Seeds)
    listed = read_cases(configurations, Configuration, columns=CONFIGURATION, shared=vars(params))
    known = {one.name: one for one in listed}
    asked = read_cases(adaptations, Adaptation, shared=vars(seeds))
    use_device(params.device)
    jobs, header = [], read_header(dataset, *PATTERNS)
    for adaptation in asked:
        if adaptation.configuration not in known:
            wanted = f"a configuration of {list(known)}"
            raise InputError(f"{adaptations}: wanted {wanted}, got {adaptation.configuration!r}")
        way = known[adaptation.configuration]
        folder = open_run(runs / way.name, "low_rank_sparse").folder
        n_seeds, n_neurons, d_model = read_header(folder / FIRST_SNAPSHOT)["W_O"].shape
        of_adapters = (
            16 * max(adaptation.ranks, default=0) * (7 * d_model + n_neurons)
        )  # with their slopes and steps
        check_memory(section, training_memory(header, n_neurons, n_seeds, 0) + of_adapters)
        jobs += [
            (adapt_seed, dataset, runs / way.name, params, way, rank, seed)
            for rank in adaptation.ranks
            for seed in adaptation.seeds
        ]
    # A row for each adapter, which has a table in scratch.
    check_disk(table, COPIES * (1600 * len(jobs) + 5000), section)
    found = spread_cells(
        {"adapters": jobs},
        device=params.device,
        label="adapters",
        unit="step",
        size=lambda dataset, folder, params, way, *_: way.n_steps,
    )
    write_table(joined(found["adapters"], "adapters"), table)


def adapt_seed(
    dataset: Path, folder: Path, params: Training, way: Configuration, rank: int, seed: int
) -> Tables:
    """Train the adapters of one rank from one seed; a row of what came of it."""
    device = use_device(params.device)
    opened = open_run(folder)
    if seed not in opened.layout.seeds:
        raise InputError(f"seeds: wanted seeds of {folder}, {opened.layout.seeds}, got {seed}")
    initial = {
        name: W[opened.layout.seeds.index(seed)].to(device) for name, W in opened.weights(0).items()
    }
    try:
        _, train, test = read_patterns(dataset).of(seed)
    except ValueError as error:
        raise InputError(str(error)) from error
    if params.batch_size > len(train.labels):
        raise InputError(
            f"batch_size: wanted at most the {len(train.labels)} samples, got {params.batch_size}"
        )
    order = generator(seed, "order")
    feed = (
        (i.to(device),) for i in epochs(len(train.labels), params.batch_size, way.n_steps, order)
    )
    train, test, readout = train.to(device), test.to(device), initial.pop("readout")
    start: Weights = {}
    for name in MATRICES:
        n_out, n_in = in_paper(initial, name).shape
        A, B = initial_adapter(n_in, n_out, rank, generator(seed, "adapter", name))
        start |= {f"A {name}": A.to(device), f"B {name}": B.to(device)}

    def slope(adapters: Weights, index: Tensor) -> tuple[Tensor, Weights]:
        loss, slopes = loss_gradient(
            adapted(initial, adapters), readout, train.tokens[index], train.labels[index]
        )
        found: Weights = {}
        for name in MATRICES:
            A, B = adapter_gradient(
                adapters[f"A {name}"], adapters[f"B {name}"], in_paper(slopes, name)
            )
            found |= {f"A {name}": A, f"B {name}": B}
        return loss, found

    def resting(adapters: Weights) -> bool:
        return at_rest(adapted(initial, adapters), readout, train.tokens, train.labels)

    steps = gradient_descent(slope, start, way.learning_rate, feed)
    final, fitted, number = start, -1, 0
    for step in until_rest(steps, resting, len(train.labels) // params.batch_size):
        if fitted < 0 and step.loss < params.fitted_loss:
            fitted = step.number
        final, number = step.after, step.number + 1
        advance()
    advance(way.n_steps - number)
    found = scores(adapted(initial, final), readout, test.tokens, test.labels, test.is_relevant)
    row = {"configuration": way.name, "rank": rank, "seed": seed, "fitted_step": fitted, **found}
    return {"adapters": pd.DataFrame([row])}


def in_paper(weights: Weights, name: str) -> Tensor:
    """A matrix the paper's way, out × in: W_O is kept so, the others transposed."""
    return weights[name] if name == "W_O" else weights[name].mT


def adapted(initial: Weights, adapters: Weights) -> Weights:
    """The weights W(0) + B A, as they are kept."""
    updates = {name: adapters[f"B {name}"] @ adapters[f"A {name}"] for name in MATRICES}
    return {name: initial[name] + in_paper(updates, name) for name in MATRICES}


if __name__ == "__main__":
    run(main)
