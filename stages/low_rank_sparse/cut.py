"""What the models are worth when ranks, neurons or weights are cut; where updates lie, and how the neurons' norms fall.

Ranks (figure 1 of Li et al. 2024): of all four updates, of parts of them, of the singular pairs 3 and 4 in place of 1
and 2, and, as a control of the path, of the weights themselves. Neurons are rows of W_O (figure 3 and corollary 1).
Every pruned model is also measured with one factor on its output, from a few training samples: it tells what pruning
took from the scale and what from the information.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

import pandas as pd
import torch
from torch import Tensor
from torch.linalg import vector_norm

from lib.analysis.low_rank import truncated_updates
from lib.analysis.pruning import Order, magnitude_masks, n_pruned, pruning_rates, removal_order
from lib.analysis.sparsity import largest_of_each_group, norm_groups, otsu_threshold, sums_of_last
from lib.analysis.subspaces import place
from lib.data.patterns import Samples, read_patterns
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread, use_device
from lib.io.files import InputError
from lib.io.params import Count, Fraction, Interval, Seed, read_params
from lib.io.runs import Run, open_run, open_runs
from lib.io.tables import write_table
from lib.models.one_layer_vit import (
    MATRICES,
    Weights,
    forward_flops,
    hinge,
    margins,
    neuron_margins,
    outputs,
    score,
    token_images,
    value_cosines,
)

Rank = Annotated[int, Interval("[0, 65536]")]
Step = Annotated[float, Interval("[0.001, 1]")]
ALONE = {"W_Q and W_K": ("W_Q", "W_K"), "W_V": ("W_V",), "W_O": ("W_O",)}
Cell = dict[str, Any]
Pruned = Iterator[tuple[Cell, Tensor, Tensor]]  # labels, margins on test samples, and on those to rescale by


@dataclass(frozen=True)
class Cut:
    ranks: tuple[Rank, ...]
    ranks_alone: tuple[Rank, ...]
    rates_of_weights: tuple[Fraction, ...]
    rate_step: Step
    large_rate_step: Step
    values_rate: Fraction
    group: Annotated[int, Interval("[1, 1024]")]
    kept_of_group: Annotated[int, Interval("[0, 1024]")]
    n_rescale_samples: Count
    random_seed: Seed

    def __post_init__(self) -> None:
        if self.kept_of_group > self.group:
            raise ValueError(f"kept_of_group: wanted at most the group of {self.group}, got {self.kept_of_group}")


def main(
    section: str, device: str, dataset: Path, runs: Path, truncate: Path, directions: Path, prune: Path, neurons: Path
) -> None:
    params, device = read_params(section, Cut), read_params(device, str)
    use_device(device)
    tables = spread(
        cut_seed,
        [(dataset, one.folder, params, device, i) for one in open_runs(runs) for i in range(len(one.layout.seeds))],
        n_processes=1 if device == "cuda" else available_cores(),
        label=section,
        unit="seed",
    )
    for parts, path in zip(zip(*tables, strict=True), (truncate, directions, prune, neurons), strict=True):
        write_table(pd.concat(parts, ignore_index=True), path)


def cut_seed(dataset: Path, folder: Path, params: Cut, device_name: str, number: int) -> list[pd.DataFrame]:
    """Every cut of one seed of one run, the directions of its updates, every pruning, and its neurons."""
    device = use_device(device_name)
    opened = open_run(folder)
    seed = opened.layout.seeds[number]
    try:
        mu, train, test = read_patterns(dataset).of(seed)
    except ValueError as error:
        raise InputError(str(error)) from error
    train, test = train[: params.n_rescale_samples].to(device), test.to(device)
    initial, model = ({name: W[number].to(device) for name, W in opened.weights(i).items()} for i in (0, -1))
    tables = (
        truncations(initial, model, test, params),
        directions_of(opened, number, mu.double()),
        prunings(model, train, test, params, seed),
        [neurons_of(initial, model, mu.to(device))],
    )
    return [pd.DataFrame(rows).assign(**opened.layout.cell, seed=seed) for rows in tables]


def truncations(initial: Weights, model: Weights, test: Samples, params: Cut) -> Iterator[Cell]:
    """What each cut to a rank leaves."""
    for kind, rank, weights in low_rank_models(initial, model, params):
        found = score(weights, model["readout"], test.tokens, test.labels, test.is_relevant)
        yield {"kind": kind, "rank": rank, **{name: value.item() for name, value in found.items()}}


def low_rank_models(initial: Weights, model: Weights, params: Cut) -> Iterator[tuple[str, int, Weights]]:
    """What was cut, to which rank, and the weights then."""
    ranks = sorted({*params.ranks, *params.ranks_alone, 2, 4})
    cut = {name: dict(truncated_updates(model[name], initial[name], ranks)) for name in MATRICES}
    whole = {name: dict(truncated_updates(model[name], 0 * model[name], params.ranks_alone)) for name in MATRICES}
    for rank in params.ranks:
        yield "all", rank, {name: cut[name][rank] for name in MATRICES}
    for rank in params.ranks_alone:
        yield "weights, not updates", rank, {name: whole[name][rank] for name in MATRICES}
    for kind, names in ALONE.items():
        for rank in params.ranks_alone:
            yield kind, rank, model | {name: cut[name][rank] for name in names}
    yield "pairs 3 and 4", 2, {name: initial[name] + cut[name][4] - cut[name][2] for name in MATRICES}


def directions_of(opened: Run, number: int, mu: Tensor) -> Iterator[Cell]:
    """At each snapshot after the first, how the updates lie to the span of the discriminative patterns."""
    first = {name: W[number].double() for name, W in opened.weights(0).items()}
    when = opened.steps.groupby("snapshot")["step"].first()
    spans = {"discriminative": mu[:2], "with mean irrelevant": torch.cat([mu[:2], mu[2:].mean(0, keepdim=True)])}
    for snapshot in opened.snapshots[1:]:
        weights = opened.weights(snapshot)
        for (name, side), image in token_images(first).items():
            update = weights[name][number].double() - first[name]
            if side == "output" or name == "W_O":
                update = update.mT  # its rows are now the side that is looked at
            for span, vectors in spans.items():
                labels = {"step": when[snapshot], "matrix": name, "side": side, "span": span}
                yield labels | place(update, vectors @ image)


def prunings(model: Weights, train: Samples, test: Samples, params: Cut, seed: int) -> Iterator[Cell]:
    """What each pruning leaves, and what it leaves with the factor that restores the mean margin on other samples."""
    pruned = [*without_neurons(model, train, test, params, seed), *without_weights(model, train, test, params)]
    dense = pruned[0][2].mean()  # the first is of a rate of zero
    for labels, margin, on_train in pruned:
        factor = dense / on_train.mean() if on_train.mean() > 0 else torch.tensor(torch.nan)
        yield labels | {
            "hinge": hinge(margin).mean().item(),
            "accuracy": (margin > 0).double().mean().item(),
            "margin": margin.mean().item(),
            "least_margin": margin.min().item(),
            "factor": factor.item(),
            "rescaled_hinge": hinge(factor * margin).mean().item(),
        }


def without_neurons(model: Weights, train: Samples, test: Samples, params: Cut, seed: int) -> Pruned:
    """Without a share of all neurons, in each order; and of the large ones, at random, when all small ones are gone."""
    by_test, by_train = (neuron_margins(model, model["readout"], of.tokens, of.labels) for of in (test, train))
    norms = vector_norm(model["W_O"], dim=1).cpu()
    large = (norms > otsu_threshold(norms)).nonzero()[:, 0]
    sequences = [
        ("neurons", order, removal_order(norms[None], order, generator(params.random_seed, "neurons", seed))[0])
        for order in get_args(Order)
    ]
    shuffled = large[torch.randperm(len(large), generator=generator(params.random_seed, "large neurons", seed))]
    flops = partial(forward_flops, *test.tokens.shape[1:])
    for what, order, units in [*sequences, ("large neurons", "random", shuffled)]:
        on_test, on_train = sums_of_last(by_test, units), sums_of_last(by_train, units)
        for rate in pruning_rates(params.rate_step if what == "neurons" else params.large_rate_step):
            kept = len(units) - n_pruned(len(units), rate)
            left = {"flops": flops(kept) / flops(len(norms)), "weights": kept / len(norms)}
            yield {"what": what, "order": order, "rate": rate, **left}, on_test[kept], on_train[kept]


def without_weights(model: Weights, train: Samples, test: Samples, params: Cut) -> Pruned:
    """Without the smallest entries of W_O, of all or of each group in a row; without columns of W_V, the paper's rows.

    Only removed neurons save operations.
    """
    swept = magnitude_masks({"W_O": model["W_O"]}, params.rates_of_weights)
    masks = [("weights", rate, "W_O", mask["W_O"]) for rate, mask in swept]
    if model["W_O"].shape[1] % params.group == 0:
        mask = largest_of_each_group(model["W_O"], params.kept_of_group, params.group)
        masks.append((f"{params.kept_of_group}:{params.group}", 1 - params.kept_of_group / params.group, "W_O", mask))
    [columns] = removal_order(vector_norm(model["W_V"], dim=0)[None].cpu(), "smallest")
    mask = torch.ones_like(model["W_V"])
    mask[:, columns[: n_pruned(len(columns), params.values_rate)]] = 0
    masks.append(("rows of W_V", params.values_rate, "W_V", mask))
    for what, rate, name, mask in masks:
        left = {"flops": 1.0, "weights": mask.double().mean().item() if name == "W_O" else 1.0}
        pruned = model | {name: model[name] * mask}
        on_test, on_train = (margins(outputs(pruned, model["readout"], of.tokens), of.labels) for of in (test, train))
        yield {"what": what, "order": "smallest", "rate": rate, **left}, on_test, on_train


def neurons_of(initial: Weights, model: Weights, mu: Tensor) -> Cell:
    """The norms of the neurons, and how they part into small and large ones.

    Where the readout is tied, `cosine` is that of a large neuron with the value vector of its pattern, on average.
    """
    norms, before = (vector_norm(weights["W_O"], dim=1).cpu() for weights in (model, initial))
    groups, cosine = norm_groups(norms), torch.tensor(torch.nan)
    if model["readout"].shape[1] == 1:
        cosine = value_cosines(model, model["readout"], mu).cpu()[norms > groups["threshold"]].mean()
    return groups | {"initial_norm": before.mean().item(), "cosine": cosine.item(), "norms": norms.numpy()}


if __name__ == "__main__":
    run(main)
