"""Test accuracy when updates are cut to rank r, and when weights, MLP neurons or heads are removed.

Truncation: the update of a matrix is W(T) - W(0), over all heads at once (d_model × heads ·
d_head), as a LoRA adapter would see it; all matrices are cut together, and each kind alone. What is
not a matrix of a block (embedding, norms, biases, head) stays as trained. r = 0 puts the initial
matrices back.

Pruning: smallest first, at random, largest first. Weights: those of all matrices of the blocks,
ranked together by magnitude, are set to zero. Neurons: of each layer's MLP, by the product of the
norms of what feeds a neuron and of what it feeds. Heads: of each layer, by the norm of W_VO.
Neurons and heads are really removed: the model has fewer parameters and does fewer operations.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import pandas as pd
import torch
from torch import Tensor
from torch.linalg import vector_norm

from lib.files.files import InputError
from lib.files.inputs import read_as, read_header
from lib.files.memory import COPIES, check_disk
from lib.files.params import Count, Interval, Positive, Seed, read_params
from lib.files.runs import FIRST_SNAPSHOT, Run, open_run, open_runs
from lib.files.tables import write_table
from lib.matrices.low_rank import doubling_ranks, truncated_updates
from lib.matrices.pruning import Order, magnitude_masks, n_pruned, pruning_rates, removal_order
from lib.training.attention import merge_heads, split_heads
from lib.training.devices import generator, use_device
from lib.vision.images import channel_statistics, read_images, standardise
from lib.vision.vit import (
    ATTENTION,
    MATRICES,
    Weights,
    forward_flops,
    remove_heads,
    remove_neurons,
    score,
)
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run

Pruned = Iterator[tuple[float, Weights]]


@dataclass(frozen=True)
class Cut:
    init_scales: tuple[Positive, ...]
    n_images: Count | None = None  # of the test images; without it all


@dataclass(frozen=True)
class Prune:
    """What all data sets share."""

    rate_step: Annotated[float, Interval("[1e-3, 1]")]
    random_seed: Seed


def main(
    section: str,
    pruning: str,
    device: str,
    dataset: Path,
    runs: Path,
    truncate: OutFile,
    prune: OutFile,
) -> None:
    params, shared, device = (
        read_params(section, Cut),
        read_params(pruning, Prune),
        read_params(device, str),
    )
    use_device(device)
    every = open_runs(runs, "vision")
    plain = {
        one.layout.cell["init_scale"]: one for one in every if one.layout.cell["control"] == "none"
    }
    chosen = [one for scale, one in plain.items() if scale in params.init_scales]
    if not chosen:
        raise InputError(
            f"{section}.init_scales: wanted some of {sorted(plain)}, the plain runs in {runs}; "
            f"got {list(params.init_scales)}"
        )
    read_as("a data set of images", read_images, dataset)
    check_disk(truncate, COPIES * (sum(written(one, shared) for one in chosen) + 15_000), section)
    jobs = [
        (cut_seed, dataset, one.folder, params.n_images, shared, device, i)
        for one in chosen
        for i in range(len(one.layout.seeds))
    ]
    parts = spread_cells({"": jobs}, device=device, label=section, unit="seed")[""]
    for name, path in (("truncate", truncate), ("prune", prune)):
        write_table(joined(parts, name), path)


def written(run: Run, shared: Prune) -> int:
    """Bytes of a run's rows: of every rank for all and each kind of matrix, of every rate in each
    order; and in scratch the tables of each seed.
    """
    largest = max(read_header(run.folder / FIRST_SNAPSHOT)[name].shape[-2] for name in MATRICES)
    n_rows = (1 + len(MATRICES)) * len(doubling_ranks(largest)) + 9 * len(
        pruning_rates(shared.rate_step)
    )
    return len(run.layout.seeds) * (50 * n_rows + 4000)


def cut_seed(
    dataset: Path, folder: Path, n_images: int | None, shared: Prune, device_name: str, seed: int
) -> Tables:
    """Every truncation, and every pruning, of one seed of one run."""
    device = use_device(device_name)
    images, opened = read_images(dataset), open_run(folder)
    statistics = channel_statistics(images.train_images)
    test = standardise(images.test_images[:n_images], *statistics).to(device)
    labels = images.test_labels[:n_images].to(device)
    initial, final = (
        {name: tensor[seed].to(device) for name, tensor in opened.weights(i).items()}
        for i in (0, -1)
    )
    number, rates = opened.layout.seeds[seed], pruning_rates(shared.rate_step)

    def source(what: str) -> torch.Generator:
        return generator(shared.random_seed, what, number)

    def scored(model: Weights) -> dict[str, float]:
        return {name: float(value) for name, value in score(model, test, labels).items()}

    def labelled(rows: Iterator[dict[str, Any]]) -> pd.DataFrame:
        return pd.DataFrame(rows).assign(**opened.layout.cell, seed=number)

    truncations = (row | scored(model) for row, model in truncated(initial, final))
    prunings = (
        row | scored(model) | costs(model, final) for row, model in pruned(final, rates, source)
    )
    return {"truncate": labelled(truncations), "prune": labelled(prunings)}


def truncated(initial: Weights, final: Weights) -> Iterator[tuple[dict[str, Any], Weights]]:
    """The model with updates cut to each rank: of all matrices together, then of each kind
    alone.
    """
    updates = {name: (whole(final[name], name), whole(initial[name], name)) for name in MATRICES}
    ranks = doubling_ranks(max(min(W.shape[-2:]) for W, _ in updates.values()))
    cut: dict[str, dict[int, Tensor]] = {name: {} for name in MATRICES}
    for name, (W, W_0) in updates.items():
        for rank, smaller in truncated_updates(W, W_0, ranks):
            cut[name][rank] = (
                split_heads(smaller, final[name].shape[1]) if name in ATTENTION else smaller
            )
    for kind in ("all", *MATRICES):
        for rank in ranks:
            names = list(MATRICES) if kind == "all" else [kind]
            yield {"kind": kind, "rank": rank}, final | {name: cut[name][rank] for name in names}


def whole(W: Tensor, name: str) -> Tensor:
    """The matrix over all heads."""
    return merge_heads(W) if name in ATTENTION else W


def pruned(
    model: Weights, rates: list[float], source: Callable[[str], torch.Generator]
) -> Iterator[tuple[dict[str, Any], Weights]]:
    """The model without a share of its weights, neurons or heads, in each order of removal, at each
    rate.
    """
    for what, prune in (
        ("weights", prune_weights),
        ("neurons", prune_neurons),
        ("heads", prune_heads),
    ):
        for order in get_args(Order):
            for rate, smaller in prune(model, rates, order, source(what)):
                yield (
                    {
                        "what": what,
                        "order": order,
                        "rate": rate,
                        "removed": removed(what, smaller, model),
                    },
                    smaller,
                )


def removed(what: str, smaller: Weights, model: Weights) -> float:
    """The share that is really removed: of few heads, a rate is rounded to a number of them."""
    if what == "weights":
        kept = sum(int(smaller[name].count_nonzero()) for name in MATRICES)
        return 1 - kept / sum(model[name].numel() for name in MATRICES)
    name, axis = {"neurons": ("W_1", 2), "heads": ("W_Q", 1)}[what]
    return 1 - smaller[name].shape[axis] / model[name].shape[axis]


def costs(pruned: Weights, model: Weights) -> dict[str, float]:
    """Parameters and operations of a pruned model, over those of the whole one."""
    return {
        "parameters": sum(w.numel() for w in pruned.values())
        / sum(w.numel() for w in model.values()),
        "flops": forward_flops(pruned) / forward_flops(model),
    }


def prune_weights(
    model: Weights, rates: list[float], order: Order, source: torch.Generator
) -> Pruned:
    """The matrices with that share of all their weights set to zero."""
    matrices = {name: model[name] for name in MATRICES}
    for rate, masks in magnitude_masks(matrices, rates, order, source):
        yield rate, model | {name: matrices[name] * masks[name] for name in MATRICES}


def prune_neurons(
    model: Weights, rates: list[float], order: Order, source: torch.Generator
) -> Pruned:
    """The model without that share of the neurons of every layer."""
    magnitudes = vector_norm(model["W_1"], dim=1) * vector_norm(model["W_2"], dim=2)
    yield from without(model, magnitudes, rates, order, source, remove_neurons)


def prune_heads(
    model: Weights, rates: list[float], order: Order, source: torch.Generator
) -> Pruned:
    """The model without that share of the heads of every layer."""
    magnitudes = vector_norm(model["W_V"] @ model["W_O"].mT, dim=(2, 3))
    yield from without(model, magnitudes, rates, order, source, remove_heads)


def without(
    model: Weights,
    magnitudes: Tensor,
    rates: list[float],
    order: Order,
    source: torch.Generator,
    remove: Callable[[Weights, Tensor], Weights],
) -> Pruned:
    """The model without the first units of each layer in the order of removal; those that stay keep
    their places.
    """
    units = removal_order(magnitudes.cpu(), order, source)
    for rate in rates:
        kept = units[:, n_pruned(units.shape[1], rate) :].sort(dim=1).values
        yield rate, remove(model, kept)


if __name__ == "__main__":
    run(main)
