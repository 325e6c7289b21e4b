"""What the models are worth when ranks, neurons or weights are cut; where updates lie, and how the
neurons' norms fall.

Ranks (figure 1 of Li et al. 2024): of all updates, of parts, of other singular pairs, of the
weights themselves, and nulls. Neurons are rows of W_O (figure 3, corollary 1). Every pruned model
is also measured with one factor on its output, from a few training samples: it tells what pruning
took from the scale and what from the information.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from torch import Tensor
from torch.linalg import vector_norm

from lib.files.files import InputError
from lib.files.inputs import Entry, read_header
from lib.files.memory import COPIES, check_disk, check_memory, size_of
from lib.files.params import Count, Fraction, Interval, Seed, read_params
from lib.files.runs import FIRST_SNAPSHOT, Run, open_run, open_runs
from lib.files.tables import write_table
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    Weights,
    attention_pattern,
    forward_flops,
    margins,
    neuron_margins,
    of_margins,
    outputs,
    scores,
    training_memory,
    update_sides,
    value_cosines,
    with_factor,
)
from lib.low_rank_sparse.patterns import PATTERNS, Samples, read_patterns
from lib.low_rank_sparse.sparsity import norm_groups, otsu_threshold, sums_of_last
from lib.low_rank_sparse.subspaces import place
from lib.matrices.low_rank import low_rank_models, null_updates
from lib.matrices.pruning import entry_removals, n_pruned, pruning_rates, removals
from lib.training.devices import generator, use_device
from lib.work.cells import Tables, joined, spread_cells
from lib.work.command import OutFile, run
from lib.work.progress import advance

Rank = Annotated[int, Interval("[0, 65536]")]
Step = Annotated[float, Interval("[0.001, 1]")]
ALONE = {"W_Q and W_K": ("W_Q", "W_K"), "W_V": ("W_V",), "W_O": ("W_O",)}
Cell = dict[str, Any]
Pruned = Iterator[
    tuple[Cell, Tensor, Tensor]
]  # labels, margins on test samples, and on those to rescale by
Known = Sequence[
    tuple[Samples, Tensor]
]  # the same two kinds of samples, with their attention patterns
TOGETHER = 5  # seeds that share the reading of their run
TABLES = ("truncate", "directions", "prune", "neurons")


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
            raise ValueError(
                f"kept_of_group: wanted at most the group of {self.group}, got {self.kept_of_group}"
            )


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
    params, device = read_params(section, Cut), read_params(device, str)
    use_device(device)
    header, opened = read_header(dataset, *PATTERNS), open_runs(runs, "low_rank_sparse")
    check_memory(
        section, max(memory(one.folder, header, params.n_rescale_samples) for one in opened)
    )
    check_disk(truncate, COPIES * (sum(written(one, params) for one in opened) + 20_000), section)
    jobs = [
        (
            cut_seeds,
            dataset,
            one.folder,
            params,
            device,
            *range(len(one.layout.seeds))[i : i + TOGETHER],
        )
        for one in opened
        for i in range(0, len(one.layout.seeds), TOGETHER)
    ]
    parts = spread_cells(
        {"": jobs}, device=device, label=section, unit="seed", size=lambda *given: len(given[4:])
    )[""]
    for name, path in zip(TABLES, (truncate, directions, prune, neurons), strict=True):
        write_table(joined(parts, name), path)


def memory(folder: Path, dataset: dict[str, Entry], n_rescale_samples: int) -> int:
    """Bytes: all states of a run, one seed's attention and values, and what each neuron adds to
    each sample.
    """
    _, n_neurons, _ = read_header(folder / FIRST_SNAPSHOT)["W_O"].shape
    (_, n_train), (_, n_test) = (dataset[f"{part}_labels"].shape for part in ("train", "test"))
    of_neurons = 5 * 8 * n_neurons * (n_test + min(n_train, n_rescale_samples))
    return 2 * size_of(folder) + training_memory(dataset, n_neurons, 0, 0) + of_neurons


def written(run: Run, params: Cut) -> int:
    """Bytes of a run's rows, of ten numbers at most, and of its neurons' norms; and of its tables
    in scratch.
    """
    n_seeds, n_neurons, _ = read_header(run.folder / FIRST_SNAPSHOT)["W_O"].shape
    of_truncate = len(params.ranks) + len(ALONE) * len(params.ranks_alone) + 2
    of_directions = 16 * len(run.snapshots)  # each side of four matrices, in two spans
    of_prune = 3 / params.rate_step + 2 / params.large_rate_step + len(params.rates_of_weights) + 10
    return (
        n_seeds * (80 * round(of_truncate + of_directions + of_prune) + 8 * n_neurons + 2000) + 6000
    )


def cut_seeds(dataset: Path, folder: Path, params: Cut, device_name: str, *numbers: int) -> Tables:
    """Of some seeds of one run: every cut, the directions of its updates, every pruning, and its
    neurons.
    """
    device = use_device(device_name)
    opened = open_run(folder)
    when = opened.steps.groupby("snapshot")["step"].first()
    snapshots = {when[i]: opened.weights(i) for i in opened.snapshots}
    found: list[Tables] = []
    for number in numbers:
        seed = opened.layout.seeds[number]
        try:
            mu, train, test = read_patterns(dataset).of(seed)
        except ValueError as error:
            raise InputError(str(error)) from error
        train, test = train[: params.n_rescale_samples].to(device), test.to(device)
        path = {
            step: {name: W[number].to(device) for name, W in of.items()}
            for step, of in snapshots.items()
        }
        initial, model = path[min(path)], path[max(path)]
        tables = (
            truncations(initial, model, test, params, seed),
            directions_of(path, mu.double()),
            prunings(model, train, test, params, seed),
            [neurons_of(initial, model, mu.to(device))],
        )
        of_seed = (pd.DataFrame(rows).assign(**opened.layout.cell, seed=seed) for rows in tables)
        found.append(dict(zip(TABLES, of_seed, strict=True)))
        advance()
    return {name: joined(found, name) for name in TABLES}


def truncations(
    initial: Weights, model: Weights, test: Samples, params: Cut, seed: int
) -> Iterator[Cell]:
    """What each cut to a rank leaves, and each null of it: two random directions of the updates,
    and Gaussian ones.
    """
    a, of_test = model["readout"], (test.tokens, test.labels, test.is_relevant)
    S = attention_pattern(model, test.tokens)
    begun, ended = ({name: weights[name] for name in MATRICES} for weights in (initial, model))
    cut = low_rank_models(ended, begun, params.ranks, params.ranks_alone, ALONE)
    nulls = null_updates(
        ended, begun, 2, lambda null, name: generator(params.random_seed, null, seed, name)
    )
    of_rank = {"random directions": 2, "gaussian": min(model["W_O"].shape)}
    for kind, rank, weights in [
        *cut,
        *((null, of_rank[null], weights) for null, weights in nulls.items()),
    ]:
        same_attention = all(weights[name] is model[name] for name in ("W_Q", "W_K"))
        yield {
            "kind": kind,
            "rank": rank,
            **scores(weights, a, *of_test, S if same_attention else None),
        }


def directions_of(path: dict[int, Weights], mu: Tensor) -> Iterator[Cell]:
    """At each saved step after the first, how the updates lie to the span of the discriminative
    patterns.
    """
    spans = {
        "discriminative": mu[:2],
        "with mean irrelevant": torch.cat([mu[:2], mu[2:].mean(0, keepdim=True)]),
    }
    (_, first), *later = path.items()
    for step, weights in later:
        for name, side, update, image in update_sides(first, weights):
            for found in place(update, {span: vectors @ image for span, vectors in spans.items()}):
                yield {"step": step, "matrix": name, "side": side, **found}


def prunings(
    model: Weights, train: Samples, test: Samples, params: Cut, seed: int
) -> Iterator[Cell]:
    """What each pruning leaves, and what it leaves with the factor that restores the mean margin on
    other samples.
    """
    known = [(of, attention_pattern(model, of.tokens)) for of in (test, train)]
    pruned = [*without_neurons(model, known, params, seed), *without_weights(model, known, params)]
    dense = pruned[0][2].mean()  # the first is of a rate of zero
    for labels, margin, on_train in pruned:
        yield labels | of_margins(margin) | with_factor(margin, on_train, dense)


def without_neurons(model: Weights, known: Known, params: Cut, seed: int) -> Pruned:
    """Without neurons, in every way of `removals`: each share of those that may go, or all of them
    at once.
    """
    by_test, by_train = (
        neuron_margins(model, model["readout"], of.tokens, of.labels, S) for of, S in known
    )
    norms = vector_norm(model["W_O"], dim=1).cpu()
    flops = partial(forward_flops, *known[0][0].tokens.shape[1:])
    of_part = pruning_rates(params.large_rate_step)
    rates = {
        "neurons": pruning_rates(params.rate_step),
        "large neurons": of_part,
        "small neurons": [*of_part, 1.0],
    }
    ways = removals(
        norms, norms > otsu_threshold(norms), lambda name: generator(params.random_seed, name, seed)
    )
    for what, order, units, n in ways:
        on_test, on_train = sums_of_last(by_test, units), sums_of_last(by_train, units)
        for rate in rates.get(what, [1.0]):
            kept = len(units) - n_pruned(n, rate)
            left = {"flops": flops(kept) / flops(len(norms)), "weights": kept / len(norms)}
            yield (
                {"what": what, "order": order, "rate": rate, **left},
                on_test[kept],
                on_train[kept],
            )


def without_weights(model: Weights, known: Known, params: Cut) -> Pruned:
    """Without entries of W_O or columns of W_V, in every way of `entry_removals`; it saves no
    operations.
    """
    of_group = params.kept_of_group, params.group
    ways = entry_removals(
        model["W_O"], model["W_V"], params.rates_of_weights, *of_group, params.values_rate
    )
    for what, rate, name, mask in ways:
        left = {"flops": 1.0, "weights": mask.double().mean().item() if name == "W_O" else 1.0}
        pruned = model | {name: model[name] * mask}
        on_test, on_train = (
            margins(outputs(pruned, model["readout"], of.tokens, S), of.labels) for of, S in known
        )
        yield {"what": what, "order": "smallest", "rate": rate, **left}, on_test, on_train


def neurons_of(initial: Weights, model: Weights, mu: Tensor) -> Cell:
    """The norms of the neurons, and how they part into small and large ones.

    Where the readout is tied, `cosine` is that of a large neuron with the value vector of its
    pattern, on average.
    """
    norms, before = (vector_norm(weights["W_O"], dim=1).cpu() for weights in (model, initial))
    groups, cosine = norm_groups(norms), torch.tensor(torch.nan)
    if model["readout"].shape[1] == 1:
        cosine = (
            value_cosines(model, model["readout"], mu).cpu()[norms > groups["threshold"]].mean()
        )
    return groups | {
        "initial_norm": before.mean().item(),
        "cosine": cosine.item(),
        "norms": norms.numpy(),
    }


if __name__ == "__main__":
    run(main)
