"""Measure models whose ranks or neurons are cut, and where W_K's updates lie.

All updates, parts of them, and the weights themselves are cut to ranks (figure 1 of Li et al.
2024); beside these stand other singular pairs, and nulls. Neurons are rows of W_O (figure 3,
corollary 1). Every pruned model is also measured with one factor on its output, which a few
training samples set: so one sees how much of the scale pruning took, and how much information.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd

from lib.files.params import Fraction, Interval, Seed, read_params
from lib.files.runs import open_run, open_runs
from lib.low_rank_sparse.cuts import truncations
from lib.low_rank_sparse.neurons import neuron_groups, prunings
from lib.low_rank_sparse.patterns import NSamples, read_patterns
from lib.low_rank_sparse.subspaces import places_of_keys
from lib.low_rank_sparse.tables.cut import DIRECTIONS, NEURONS, PRUNE, TRUNCATE
from lib.training.devices import use_device
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run
from lib.work.progress import advance

Rank = Annotated[int, Interval("[0, 65536]")]
Step = Annotated[float, Interval("[0.001, 1]")]
TOGETHER = 5  # seeds that share the reading of their run


@dataclass(frozen=True)
class Params:
    ranks: tuple[Rank, ...]
    ranks_alone: tuple[Rank, ...]  # for W_Q and W_K together, W_V, W_O
    rate_step: Step
    large_rate_step: Step
    values_rate: Fraction
    n_rescale_samples: NSamples
    random_seed: Seed


def main(
    section: str,
    device: str,
    dataset: Path,
    runs: Path,
    truncate: OutFile,
    directions: OutFile,
    prune: OutFile,
    neurons: OutFile,
) -> None:
    params = read_params(section, Params)
    device = read_params(device, str)
    use_device(device)
    read_patterns(dataset)  # which refuses another file
    jobs: list[tuple] = []
    for one in open_runs(runs, "low_rank_sparse"):
        numbers_of_seeds = range(len(one.layout.seeds))
        for first in numbers_of_seeds[::TOGETHER]:
            some = numbers_of_seeds[first : first + TOGETHER]
            jobs.append((cut_seeds, dataset, one.folder, params, device, *some))
    parts = spread_cells(
        {"": jobs}, device=device, label=section, unit="seed", size=lambda *given: len(given[4:])
    )[""]
    TRUNCATE.write(joined(parts, "truncate"), truncate)
    DIRECTIONS.write(joined(parts, "directions"), directions)
    PRUNE.write(joined(parts, "prune"), prune)
    NEURONS.write(joined(parts, "neurons"), neurons)


def cut_seeds(
    dataset: Path, folder: Path, params: Params, device_name: str, *numbers_of_seeds: int
) -> Tables:
    """Measure some seeds of one run: every cut, every pruning, W_K's directions, the neurons."""
    device = use_device(device_name)
    data = read_patterns(dataset)
    opened = open_run(folder)
    first = opened.weights(0)
    last = opened.weights(-1)
    found: list[Tables] = []
    for number in numbers_of_seeds:
        seed = opened.layout.seeds[number]
        mu, train, test = data.of(seed)
        train = train[: params.n_rescale_samples].to(device)
        test = test.to(device)
        initial = {name: W[number].to(device) for name, W in first.items()}
        model = {name: W[number].to(device) for name, W in last.items()}
        rows = {
            "truncate": truncations(
                initial,
                model,
                test,
                ranks=params.ranks,
                ranks_alone=params.ranks_alone,
                random_seed=params.random_seed,
                seed=seed,
            ),
            "directions": places_of_keys(initial, model, mu.double()),
            "prune": prunings(
                model,
                train,
                test,
                rate_step=params.rate_step,
                large_rate_step=params.large_rate_step,
                values_rate=params.values_rate,
                random_seed=params.random_seed,
                seed=seed,
            ),
            "neurons": [neuron_groups(initial, model, mu.to(device))],
        }
        cell = {**opened.layout.cell, "seed": seed}
        found.append({name: pd.DataFrame(of).assign(**cell) for name, of in rows.items()})
        advance()
    return {name: joined(found, name) for name in found[0]}


if __name__ == "__main__":
    run(main)
