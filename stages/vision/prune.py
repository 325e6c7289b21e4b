"""Test accuracy when weights, MLP neurons or heads are removed: smallest first, at random, largest first.

Weights: those of all matrices of the blocks, ranked together by magnitude, are set to zero. Neurons: of each layer's
MLP, by the product of the norms of what feeds a neuron and of what it feeds. Heads: of each layer, by the norm of
W_VO. Neurons and heads are really removed: the model has fewer parameters and does fewer operations.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pandas as pd
import torch
from torch import Tensor
from torch.linalg import vector_norm

from lib.analysis.pruning import Order, magnitude_masks, n_pruned, removal_order
from lib.data.images import channel_statistics, read_images, standardise
from lib.io.command import run
from lib.io.compute import advance, available_cores, generator, spread, use_device
from lib.io.params import Count, Fraction, Seed, read_params
from lib.io.runs import open_chosen, open_run
from lib.io.tables import write_table
from lib.models.vit import MATRICES, Weights, forward_flops, remove_heads, remove_neurons, score


@dataclass(frozen=True)
class Prune:
    device: Literal["cpu", "cuda"]
    runs: tuple[str, ...]
    n_images: Count
    rates: tuple[Fraction, ...]
    random_seed: Seed


def main(section: str, dataset: Path, runs: Path, table: Path) -> None:
    params = read_params(section, Prune)
    use_device(params.device)
    chosen = open_chosen(runs, params.runs, f"{section}.runs")
    jobs = [(dataset, opened.folder, params, i) for opened in chosen for i in range(len(opened.layout.seeds))]
    tables = spread(
        prune_seed,
        jobs,
        n_processes=1 if params.device == "cuda" else available_cores(),
        total=len(jobs) * 3 * len(get_args(Order)) * len(params.rates),
        label=section,
        unit="model",
    )
    write_table(pd.concat(tables, ignore_index=True), table)


def prune_seed(dataset: Path, folder: Path, params: Prune, seed: int) -> pd.DataFrame:
    """Every pruning of one seed of one run."""
    device = use_device(params.device)
    images = read_images(dataset)
    test = standardise(images.test_images[: params.n_images], *channel_statistics(images.train_images)).to(device)
    labels = images.test_labels[: params.n_images].to(device)
    opened = open_run(folder)
    model = {name: tensor[seed].to(device) for name, tensor in opened.weights(-1).items()}
    image_shape = tuple(test.shape[1:])
    rows = []
    for what, prune in (("weights", prune_weights), ("neurons", prune_neurons), ("heads", prune_heads)):
        for order in get_args(Order):
            source = generator(params.random_seed, what, opened.layout.seeds[seed])
            for rate, pruned in prune(model, params.rates, order, source):
                loss, accuracy = score(pruned, test, labels)
                n_parameters = sum(w.numel() for w in pruned.values())
                rows.append(
                    {
                        "what": what,
                        "order": order,
                        "rate": rate,
                        "test_loss": loss,
                        "test_accuracy": accuracy,
                        "parameters": n_parameters / sum(w.numel() for w in model.values()),
                        "flops": forward_flops(pruned, image_shape) / forward_flops(model, image_shape),
                    }
                )
                advance()
    return pd.DataFrame(rows).assign(**opened.layout.cell, seed=opened.layout.seeds[seed])


Pruned = Iterator[tuple[float, Weights]]


def prune_weights(model: Weights, rates: tuple[float, ...], order: Order, source: torch.Generator) -> Pruned:
    """The matrices with that share of all their weights set to zero."""
    matrices = {name: model[name] for name in MATRICES}
    for rate, masks in magnitude_masks(matrices, rates, order, source):
        yield rate, model | {name: matrices[name] * masks[name] for name in MATRICES}


def prune_neurons(model: Weights, rates: tuple[float, ...], order: Order, source: torch.Generator) -> Pruned:
    """The model without that share of the neurons of every layer."""
    magnitudes = vector_norm(model["W_1"], dim=1) * vector_norm(model["W_2"], dim=2)
    yield from without(model, magnitudes, rates, order, source, remove_neurons)


def prune_heads(model: Weights, rates: tuple[float, ...], order: Order, source: torch.Generator) -> Pruned:
    """The model without that share of the heads of every layer."""
    magnitudes = vector_norm(model["W_V"] @ model["W_O"].mT, dim=(2, 3))
    yield from without(model, magnitudes, rates, order, source, remove_heads)


def without(
    model: Weights,
    magnitudes: Tensor,
    rates: tuple[float, ...],
    order: Order,
    source: torch.Generator,
    remove: Callable[[Weights, Tensor], Weights],
) -> Pruned:
    """The model without the first units of each layer in the order of removal; those that stay keep their places."""
    units = removal_order(magnitudes.cpu(), order, source)
    for rate in rates:
        kept = units[:, n_pruned(units.shape[1], rate) :].sort(dim=1).values
        yield rate, remove(model, kept)


if __name__ == "__main__":
    run(main)
