"""Train small models over grids of parameters, and with other labels; measure each.

A sweep varies one parameter of a configuration's training, at fewer neurons, and may cross it with
another. A labelling says how many label-relevant patterns each class has ("1|1|1": three classes of
one pattern, "2|2": two of two each). Beside trainings with other labellings stand nulls: the same
with permuted labels, and updates in random directions.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd
import torch
from torch import Tensor

from lib.files.files import InputError
from lib.files.params import Positive, Seeds, Steps, read_cases, read_params
from lib.low_rank_sparse.configurations import COLUMNS
from lib.low_rank_sparse.cuts import changed_updates
from lib.low_rank_sparse.energy import around_each
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    Neurons,
    SampleLoss,
    Weights,
    initial_weights,
    numbers,
    random_readout,
    score,
)
from lib.low_rank_sparse.patterns import PatternSizes, draw_patterns, epochs, permuted
from lib.low_rank_sparse.sparsity import norm_groups
from lib.low_rank_sparse.sweeps import Problem, Row, Sweep, Training, problems
from lib.low_rank_sparse.tables.swept import TRAININGS
from lib.matrices.low_rank import in_random_directions, truncated_models, update_spectra
from lib.training.devices import generator, use_device
from lib.training.gradient_descent import gradient_descent, last_and_fitted, until_rest
from lib.work.cells import Tables, spread_cells
from lib.work.command import OutFile, run


@dataclass(frozen=True)
class Configuration:
    """The columns that are read from a configuration of the trainings."""

    name: str
    readout: Literal["tied", "untied"]
    learning_rate: Positive


@dataclass(frozen=True)
class Params(Seeds):
    """What holds for sweeps that name nothing else, and the loss below which a batch is fitted."""

    configuration: str
    n_steps: Steps
    n_neurons: Neurons
    fitted_loss: Positive


def main(
    section: str, data: str, training: str, configurations: Path, sweeps: list[Path], table: OutFile
) -> None:
    params = read_params(section, Params)
    device = read_params(f"{training}.device", str)
    use_device(device)
    base = asdict(read_params(data, PatternSizes, part=True))
    base |= asdict(read_params(training, Training, part=True))
    known = {
        one.name: {"readout": one.readout, "learning_rate": one.learning_rate}
        for one in read_cases(configurations, Configuration, columns=COLUMNS, shared=base)
    }
    asked: list[tuple[Row, tuple]] = []
    for sweep, where in read_sweeps(sweeps, base | asdict(params)):
        for labels, problem in problems(sweep, base, known, where):
            asked.append((labels, (problem, sweep.looks, *sweep.seeds)))
    cells = list(dict.fromkeys(cell for _, cell in asked))  # where sweeps meet, one training serves
    jobs = [(measure, device, params.fitted_loss, *cell) for cell in cells]
    parts = spread_cells({"": jobs}, device=device, label=section, unit="problem")[""]
    found = {cell: part["trainings"] for cell, part in zip(cells, parts, strict=True)}
    tables = [pd.DataFrame([labels] * len(found[cell])).join(found[cell]) for labels, cell in asked]
    TRAININGS.write(pd.concat(tables, ignore_index=True), table)


def read_sweeps(files: Sequence[Path], shared: Row) -> list[tuple[Sweep, str]]:
    """The sweeps of all tables, each with its table; names are distinct."""
    found: dict[str, tuple[Sweep, str]] = {}
    for file in files:
        for sweep in read_cases(file, Sweep, shared=shared):
            if sweep.name in found:
                raise InputError(f"{file}: wanted a sweep of its own, got {sweep.name!r} again")
            found[sweep.name] = (sweep, str(file))
    return list(found.values())


def measure(
    device: str, fitted_loss: float, problem: Problem, looks: Sequence[str], *seeds: int
) -> Tables:
    """Train one problem from every seed and measure each model, a row per seed."""
    rows = [measure_seed(device, fitted_loss, problem, looks, seed) for seed in seeds]
    return {"trainings": pd.DataFrame(rows)}


@torch.inference_mode()
def measure_seed(
    device: str, fitted_loss: float, problem: Problem, looks: Sequence[str], seed: int
) -> Row:
    """Train one problem from one seed, score the model, and look at its updates and neurons."""
    place = use_device(device)
    source = partial(generator, seed)
    _, train, test = draw_patterns(problem.labelled, problem.n_train, problem.n_test, source)
    train = train.to(place)
    test = test.to(place)
    start = initial_weights(
        problem.d_model,
        problem.n_neurons,
        problem.init_scale,
        source("weights"),
        value_error=problem.value_error,
        query_key_error=problem.query_key_error,
    )
    initial = {name: start[name].to(place) for name in MATRICES}
    readout = random_readout(
        problem.readout, problem.n_outputs, problem.seq_len, problem.n_neurons, source("readout")
    ).to(place)
    labels = train.labels
    if problem.permuted:
        labels = permuted(labels, source("permuted labels"))
    loss = SampleLoss(readout, train.tokens, labels)
    batches = epochs(problem.n_train, problem.batch_size, problem.n_steps, source("order"))
    feed = ((index.to(place),) for index in batches)
    steps = gradient_descent(loss.gradient, initial, problem.learning_rate, feed)
    steps = until_rest(steps, loss.at_rest, problem.n_train // problem.batch_size)
    final, fitted = last_and_fitted(steps, initial, fitted_loss)

    def scored(weights: Weights) -> dict[str, float]:
        return numbers(score(weights, readout, test.tokens, test.labels, test.is_relevant))

    groups = norm_groups(final["W_O"].norm(dim=1).cpu())
    return {
        "seed": seed,
        **asdict(problem),
        "fitted_step": fitted,
        **scored(final),
        **look(initial, final, problem, looks, seed, scored),
        "small_share": groups["small_share"],
        "large_over_small": groups["large_norm"] / groups["small_norm"],
    }


def look(
    initial: Weights,
    final: Weights,
    problem: Problem,
    looks: Sequence[str],
    seed: int,
    scored: Callable[[Weights], dict[str, float]],
) -> Row:
    """What the updates are worth: the loss where they are cut, their spectra, and a null.

    Updates are cut to ranks around k, the number of label-relevant patterns, and the updates of W_Q
    and W_K are also left out. The null of a cut has all updates in k random directions.
    """
    k = problem.labelled.n_discriminative

    def projected(update: Tensor, name: str) -> Tensor:
        draw = generator(seed, "random directions", problem.labels, name)
        return in_random_directions(update, k, draw)

    row: Row = {}
    if "cuts" in looks:
        cut = truncated_models(final, initial, {2, k - 1, k})
        untrained = final | {name: initial[name] for name in ("W_Q", "W_K")}
        hinge = {rank: scored(model)["hinge"] for rank, model in cut.items()}
        row["hinge_at_rank_2"] = hinge[2]
        row["hinge_at_rank_below"] = hinge[k - 1]
        row["hinge_at_rank_k"] = hinge[k]
        row["hinge_without_attention"] = scored(untrained)["hinge"]
    if "spectra" in looks:
        row |= around_each(update_spectra(final, initial), k)
    if "nulls" in looks:
        other = changed_updates(final, initial, projected)
        row["hinge_in_random_directions"] = scored(other)["hinge"]
    return row


if __name__ == "__main__":
    run(main)
