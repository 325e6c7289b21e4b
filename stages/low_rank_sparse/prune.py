"""What the models are worth when neurons (rows of W_O) or single weights are removed, and how the neurons' norms fall.

Neurons: smallest first, at random, largest first; and, with all small neurons gone, a random share of the large ones
(corollary 1). Weights of W_O: smallest first, ranked together, and two of every four in a row. As a control, the rows
of the paper's W_V instead. Each with one factor on the output besides, from a few training samples, which tells what
pruning took from the scale and what from the information.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pandas as pd
import torch
from torch import Tensor
from torch.linalg import vector_norm

from lib.analysis.pruning import Order, magnitude_masks, n_pruned, removal_order
from lib.analysis.sparsity import bimodality_coefficient, largest_of_each_group, otsu_threshold
from lib.data.patterns import Samples, read_patterns
from lib.io.command import run
from lib.io.compute import available_cores, generator, spread, use_device
from lib.io.files import InputError
from lib.io.params import Count, Fraction, Interval, Seed, read_params
from lib.io.runs import open_run, open_runs
from lib.io.tables import write_table
from lib.models.one_layer_vit import Weights, forward_flops, hinge, margins, neuron_outputs, outputs

Rates = tuple[Fraction, ...]


@dataclass(frozen=True)
class Prune:
    device: Literal["cpu", "cuda"]
    rates: Rates
    rates_of_large: Rates
    rates_of_weights: Rates
    rates_of_values: Rates
    group: Annotated[int, Interval("[1, 1024]")]
    kept_of_group: Annotated[int, Interval("[0, 1024]")]
    n_rescale_samples: Count
    random_seed: Seed

    def __post_init__(self) -> None:
        for name in ("rates", "rates_of_large"):
            given = list(getattr(self, name))
            if not given or given[0] != 0 or given != sorted(given):
                raise ValueError(f"{name}: wanted 0 and rising rates, got {given}")
        if self.kept_of_group > self.group:
            raise ValueError(f"kept_of_group: wanted at most the group of {self.group}, got {self.kept_of_group}")


Pruned = Iterator[tuple[dict[str, Any], Tensor, Tensor]]  # labels, margins on test samples, and on those to rescale by


def main(section: str, dataset: Path, runs: Path, table: Path, neurons: Path) -> None:
    params = read_params(section, Prune)
    use_device(params.device)
    jobs = [(dataset, opened.folder, params, i) for opened in open_runs(runs) for i in range(len(opened.layout.seeds))]
    tables = spread(
        prune_seed,
        jobs,
        n_processes=1 if params.device == "cuda" else available_cores(),
        label=section,
        unit="seed",
    )
    pruned, norms = zip(*tables, strict=True)
    write_table(pd.concat(pruned, ignore_index=True), table)
    write_table(pd.concat(norms, ignore_index=True), neurons)


def prune_seed(dataset: Path, folder: Path, params: Prune, number: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every pruning of one seed of one run, and its neurons."""
    device = use_device(params.device)
    opened = open_run(folder)
    seed = opened.layout.seeds[number]
    try:
        mu, train, test = read_patterns(dataset).of(seed)
    except ValueError as error:
        raise InputError(str(error)) from error
    train, test = train[: params.n_rescale_samples].to(device), test.to(device)
    initial, model = ({name: W[number].to(device) for name, W in opened.weights(i).items()} for i in (0, -1))
    cell = {**opened.layout.cell, "seed": seed}

    def source(purpose: str) -> torch.Generator:
        return generator(params.random_seed, purpose, seed)

    rows, dense = [], None
    for prune in (prune_neurons, prune_weights, prune_values):
        for labels, margin, on_train in prune(model, train, test, params, source):
            dense = on_train.mean() if dense is None else dense  # the first is of a rate of zero
            factor = dense / on_train.mean() if on_train.mean() > 0 else torch.tensor(torch.nan)
            rows.append(
                {
                    **labels,
                    "hinge": hinge(margin).mean().item(),
                    "accuracy": (margin > 0).double().mean().item(),
                    "margin": margin.mean().item(),
                    "least_margin": margin.min().item(),
                    "factor": factor.item(),
                    "rescaled_hinge": hinge(factor * margin).mean().item(),
                }
            )
    return pd.DataFrame(rows).assign(**cell), neurons_of(initial, model, mu.to(device)).assign(**cell)


def shares(model: Weights, seq_len: int, neurons: int, weights: float) -> dict[str, float]:
    """Operations and weights of W_O that are left, as shares of the whole model's; only removed neurons save any."""
    n_neurons, d_model = model["W_O"].shape[0], model["W_Q"].shape[0]
    whole = forward_flops(seq_len, d_model, n_neurons)
    return {"flops": forward_flops(seq_len, d_model, neurons) / whole, "weights": weights}


def prune_neurons(model: Weights, train: Samples, test: Samples, params: Prune, source: Any) -> Pruned:
    """That share of all neurons, in each order; and of the large ones, at random, when all small ones are gone."""
    on_test, on_train = (each_neuron(model, samples) for samples in (test, train))
    norms = vector_norm(model["W_O"], dim=1).cpu()
    large = (norms > otsu_threshold(norms)).nonzero()[:, 0]
    sequences = [
        ("neurons", order, removal_order(norms[None], order, source("neurons"))[0]) for order in get_args(Order)
    ]
    shuffled = large[torch.randperm(len(large), generator=source("large neurons"))]
    for what, order, units in [*sequences, ("large neurons", "random", shuffled)]:
        by_test, by_train = (margins_of_last(each, units) for each in (on_test, on_train))
        for rate in params.rates if what == "neurons" else params.rates_of_large:
            kept = len(units) - n_pruned(len(units), rate)
            left = shares(model, test.tokens.shape[1], kept, kept / len(norms))
            labels = {"what": what, "order": order, "rate": rate, **left}
            yield labels, by_test[kept], by_train[kept]


def prune_weights(model: Weights, train: Samples, test: Samples, params: Prune, source: Any) -> Pruned:
    """That share of the entries of W_O, smallest first; and all but the largest of each group in a row."""
    del source
    seq_len, n_neurons = test.tokens.shape[1], len(model["W_O"])
    swept = magnitude_masks({"W_O": model["W_O"]}, params.rates_of_weights)
    masks = [("weights", rate, mask["W_O"]) for rate, mask in swept]
    if model["W_O"].shape[1] % params.group == 0:
        mask = largest_of_each_group(model["W_O"], params.kept_of_group, params.group)
        masks.append((f"{params.kept_of_group}:{params.group}", 1 - params.kept_of_group / params.group, mask))
    for what, rate, mask in masks:
        pruned = model | {"W_O": model["W_O"] * mask}
        labels = {"what": what, "order": "smallest", "rate": rate}
        left = shares(model, seq_len, n_neurons, mask.double().mean().item())
        yield labels | left, signed(pruned, test), signed(pruned, train)


def prune_values(model: Weights, train: Samples, test: Samples, params: Prune, source: Any) -> Pruned:
    """That share of the rows of the paper's W_V (here its columns), smallest first: they are no neurons."""
    del source
    [units] = removal_order(vector_norm(model["W_V"], dim=0)[None].cpu(), "smallest")
    for rate in params.rates_of_values:
        mask = torch.ones(len(units), device=model["W_V"].device)
        mask[units[: n_pruned(len(units), rate)]] = 0
        pruned = model | {"W_V": model["W_V"] * mask}
        labels = {"what": "rows of W_V", "order": "smallest", "rate": rate}
        left = shares(model, test.tokens.shape[1], len(model["W_O"]), 1.0)
        yield labels | left, signed(pruned, test), signed(pruned, train)


def signed(model: Weights, samples: Samples) -> Tensor:
    """The margins of a model."""
    return margins(outputs(model, model["readout"], samples.tokens), samples.labels)


def each_neuron(model: Weights, samples: Samples) -> Tensor:
    """What each neuron adds to the margin of each sample, in float64."""
    parts = neuron_outputs(model, model["readout"], samples.tokens)[:, 0].double()
    return parts * (1 - 2 * samples.labels.double())[:, None]


def margins_of_last(each: Tensor, units: Tensor) -> Tensor:
    """Row k: the margins of every sample when the last k of these neurons alone are there."""
    return torch.cat([each.new_zeros(1, len(each)), each[:, units.flip(0)].mT.cumsum(0)])


def neurons_of(initial: Weights, model: Weights, mu: Tensor) -> pd.DataFrame:
    """One row: the norms of the neurons, and how they part into small and large ones.

    Where the readout is tied, `cosine` is that of a large neuron with the value vector of the pattern that its sign in
    the readout stands for, on average.
    """
    norms, before = (vector_norm(weights["W_O"], dim=1).cpu() for weights in (model, initial))
    threshold = otsu_threshold(norms)
    large = norms > threshold
    cosine = torch.tensor(torch.nan)
    if model["readout"].shape[1] == 1:
        values = torch.nn.functional.normalize(mu[:2] @ model["W_V"], dim=1)
        own = values[(model["readout"][0, 0] < 0).long()]
        cosine = (torch.nn.functional.normalize(model["W_O"], dim=1) * own).sum(1).cpu()[large].mean()
    return pd.DataFrame(
        {
            "threshold": [threshold],
            "small_share": [1 - large.double().mean().item()],
            "small_norm": [norms[~large].mean().item()],
            "large_norm": [norms[large].mean().item()],
            "initial_norm": [before.mean().item()],
            "bimodality": [bimodality_coefficient(norms)],
            "cosine": [cosine.item()],
            "norms": [norms.numpy()],
        }
    )


if __name__ == "__main__":
    run(main)
