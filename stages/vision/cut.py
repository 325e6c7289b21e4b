"""Measure the test accuracy of trained models whose updates are cut to a rank, and of pruned ones.

The plain runs of some init scales are cut, every seed; `lib/vision/cuts.py` says how.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch

from lib.files.inputs import read_as
from lib.files.params import Count, Interval, Positive, Seed, read_params
from lib.files.runs import open_run
from lib.matrices.pruning import pruning_rates
from lib.training.devices import generator, use_device
from lib.vision.cuts import costs, plain_runs, pruned, truncated
from lib.vision.datasets import dataset_file, read_dataset
from lib.vision.images import standardise
from lib.vision.tables.cut import PRUNE, TRUNCATE
from lib.vision.vit import Weights, score_batches
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run


@dataclass(frozen=True)
class Cut:
    init_scales: tuple[Positive, ...]
    n_images: Count | None = None  # test images are scored; without it all


@dataclass(frozen=True)
class Prune:
    """The params that all data sets share."""

    rate_step: Annotated[float, Interval("[1e-3, 1]")]
    random_seed: Seed


def main(
    section: str,
    pruning: str,
    device: str,
    images: Path,
    runs: Path,
    truncate: OutFile,
    prune: OutFile,
) -> None:
    params = read_params(section, Cut)
    shared = read_params(pruning, Prune)
    device = read_params(device, str)
    use_device(device)
    file = dataset_file(images)
    read_as("a data set of images", read_dataset, file)
    jobs = [
        (cut_seed, file, one.folder, params.n_images, shared, device, i)
        for one in plain_runs(runs, params.init_scales, section)
        for i in range(len(one.layout.seeds))
    ]
    parts = spread_cells({"": jobs}, device=device, label=section, unit="seed")[""]
    TRUNCATE.write(joined(parts, "truncate"), truncate)
    PRUNE.write(joined(parts, "prune"), prune)


def cut_seed(
    dataset: Path, folder: Path, n_images: int | None, shared: Prune, device_name: str, seed: int
) -> Tables:
    """Every truncation, and every pruning, of one seed of one run."""
    device = use_device(device_name)
    images = read_dataset(dataset)
    opened = open_run(folder)
    statistics = [s.to(device) for s in images.statistics()]
    batches = images.on(device).tests(n_images)
    test = [(standardise(x, *statistics), y) for x, y in batches]
    initial, final = (
        {name: tensor[seed].to(device) for name, tensor in opened.weights(i).items()}
        for i in (0, -1)
    )
    number = opened.layout.seeds[seed]

    def source(what: str) -> torch.Generator:
        return generator(shared.random_seed, what, number)

    def scored(model: Weights) -> dict[str, float]:
        return {name: float(value) for name, value in score_batches(model, test).items()}

    def labelled(rows: Iterator[dict[str, Any]]) -> pd.DataFrame:
        return pd.DataFrame(rows).assign(**opened.layout.cell, seed=number)

    cut = (row | scored(model) for row, model in truncated(initial, final))
    smaller = pruned(final, pruning_rates(shared.rate_step), source)
    prunings = (row | scored(model) | costs(model, final) for row, model in smaller)
    return {"truncate": labelled(cut), "prune": labelled(prunings)}


if __name__ == "__main__":
    run(main)
