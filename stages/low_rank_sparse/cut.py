"""Measure models whose ranks or neurons are cut, and where W_K's updates lie.

All updates, parts of them, and the weights themselves are cut to ranks (figure 1 of Li et al.
2024); beside these stand other singular pairs, and nulls. Neurons are rows of W_O (figure 3,
corollary 1). Every pruned model is also measured with one factor on its output, which a few
training samples set: so one sees how much of the scale pruning took, and how much information.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor
from torch.linalg import vector_norm

from lib.files.params import Fraction, Interval, Seed, read_params
from lib.files.runs import open_run, open_runs
from lib.low_rank_sparse.cuts import Cut, changed_updates, low_rank_models
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    Weights,
    margin_scores,
    margins,
    neuron_margins,
    numbers,
    outputs,
    rescaled_hinge,
    score,
    value_cosines,
)
from lib.low_rank_sparse.patterns import NSamples, Samples, read_patterns
from lib.low_rank_sparse.sparsity import (
    norm_groups,
    otsu_threshold,
    removals,
    sums_of_last,
    without_columns,
)
from lib.low_rank_sparse.subspaces import place
from lib.low_rank_sparse.tables.cut import DIRECTIONS, NEURONS, PRUNE, TRUNCATE
from lib.matrices.low_rank import in_random_directions
from lib.matrices.pruning import n_pruned, pruning_rates
from lib.matrices.spectra import gaussian_of_equal_norm
from lib.training.devices import generator, use_device
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run
from lib.work.progress import advance

Rank = Annotated[int, Interval("[0, 65536]")]
Step = Annotated[float, Interval("[0.001, 1]")]
Row = dict[str, Any]
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


class Pruned(NamedTuple):
    """A pruned model: what was pruned, and its margins on the test and the training samples."""

    what: Row
    on_test: Tensor
    on_train: Tensor


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
            "truncate": truncations(initial, model, test, params, seed),
            "directions": directions_of(initial, model, mu.double()),
            "prune": prunings(model, train, test, params, seed),
            "neurons": [neurons_of(initial, model, mu.to(device))],
        }
        cell = {**opened.layout.cell, "seed": seed}
        found.append({name: pd.DataFrame(of).assign(**cell) for name, of in rows.items()})
        advance()
    return {name: joined(found, name) for name in found[0]}


def truncations(
    initial: Weights, model: Weights, test: Samples, params: Params, seed: int
) -> Iterator[Row]:
    """Yield what each cut to a rank leaves, and each null of a cut to rank 2."""
    begun = {name: initial[name] for name in MATRICES}
    ended = {name: model[name] for name in MATRICES}

    def projected(update: Tensor, name: str) -> Tensor:
        draw = generator(params.random_seed, "random directions", seed, name)
        return in_random_directions(update, 2, draw)

    def noise(update: Tensor, name: str) -> Tensor:
        draw = generator(params.random_seed, "gaussian", seed, name)
        return gaussian_of_equal_norm(update, draw)

    cuts = [
        *low_rank_models(ended, begun, params.ranks, params.ranks_alone),
        Cut("random directions", 2, changed_updates(ended, begun, projected)),
        Cut("gaussian", min(model["W_O"].shape), changed_updates(ended, begun, noise)),
    ]
    for cut in cuts:
        scores = score(
            {**cut.weights}, model["readout"], test.tokens, test.labels, test.is_relevant
        )
        yield {"kind": cut.kind, "rank": cut.rank, **numbers(scores)}


def directions_of(initial: Weights, model: Weights, mu: Tensor) -> list[Row]:
    """Where the two leading directions of the update of W_K lie, on its tokens' side, by span."""
    spans = {
        "discriminative": mu[:2],
        "with mean irrelevant": torch.cat([mu[:2], mu[2:].mean(0, keepdim=True)]),
    }
    return place(model["W_K"].cpu().double() - initial["W_K"].cpu().double(), spans)


def prunings(
    model: Weights, train: Samples, test: Samples, params: Params, seed: int
) -> Iterator[Row]:
    """Yield what each pruning leaves, as it is and with a factor on the output.

    The factor gives the training samples the mean margin that they have in the whole model.
    """
    pruned = [
        *without_neurons(model, train, test, params, seed),
        without_values(model, train, test, params.values_rate),
    ]
    dense = pruned[0].on_train.mean()  # the first is of a rate of zero
    for one in pruned:
        scores = numbers(margin_scores(one.on_test, torch.float64))
        rescaled = rescaled_hinge(one.on_test, one.on_train, dense)
        yield one.what | scores | {"rescaled_hinge": rescaled}


def without_neurons(
    model: Weights, train: Samples, test: Samples, params: Params, seed: int
) -> Iterator[Pruned]:
    """The model without neurons, in every way of `removals`, by shares of those that may go."""
    by_test = neuron_margins(model, model["readout"], test.tokens, test.labels)
    by_train = neuron_margins(model, model["readout"], train.tokens, train.labels)
    norms = vector_norm(model["W_O"], dim=1).cpu()
    of_part = pruning_rates(params.large_rate_step)
    rates = {
        "neurons": pruning_rates(params.rate_step),
        "large neurons": of_part,
        "small neurons": [*of_part, 1.0],
        "as many as small": [1.0],
    }
    ways = removals(
        norms, norms > otsu_threshold(norms), lambda name: generator(params.random_seed, name, seed)
    )
    for way in ways:
        on_test = sums_of_last(by_test, way.units)
        on_train = sums_of_last(by_train, way.units)
        for rate in rates[way.what]:
            kept = len(way.units) - n_pruned(way.most, rate)
            what = {
                "what": way.what,
                "order": way.order,
                "rate": rate,
                "weights": kept / len(norms),
            }
            yield Pruned(what, on_test[kept], on_train[kept])


def without_values(model: Weights, train: Samples, test: Samples, rate: float) -> Pruned:
    """The model without a share of the rows of the paper's W_V, here columns; all neurons stay."""
    pruned = model | {"W_V": without_columns(model["W_V"], rate)}
    on_test = margins(outputs(pruned, model["readout"], test.tokens), test.labels)
    on_train = margins(outputs(pruned, model["readout"], train.tokens), train.labels)
    what = {"what": "rows of W_V", "order": "smallest", "rate": rate, "weights": 1.0}
    return Pruned(what, on_test, on_train)


def neurons_of(initial: Weights, model: Weights, mu: Tensor) -> Row:
    """The norms of the neurons, and how they part into small and large ones.

    Where the readout is tied, `cosine` is the mean cosine of a large neuron with the value vector
    of its pattern.
    """
    norms = vector_norm(model["W_O"], dim=1).cpu()
    before = vector_norm(initial["W_O"], dim=1).cpu()
    groups = norm_groups(norms)
    cosine = torch.tensor(torch.nan)
    if model["readout"].shape[1] == 1:
        of_each = value_cosines(model, model["readout"], mu).cpu()
        cosine = of_each[norms > groups["threshold"]].mean()
    return groups | {
        "initial_norm": before.mean().item(),
        "cosine": cosine.item(),
        "norms": norms.numpy(),
    }


if __name__ == "__main__":
    run(main)
