"""The neurons of a trained model: how their norms part, and what is left without some of them.

Neurons are rows of W_O (figure 3 and corollary 1 of Li et al. 2024). A pruned model is measured as
it is, and with one factor on its output, which a few training samples set: so one sees how much of
the scale pruning took, and how much information.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.linalg import vector_norm

from lib.low_rank_sparse.one_layer import (
    margin_scores,
    margins,
    neuron_margins,
    numbers,
    outputs,
    rescaled_hinge,
    value_cosines,
)
from lib.low_rank_sparse.patterns import Samples
from lib.low_rank_sparse.sparsity import (
    norm_groups,
    otsu_threshold,
    removals,
    sums_of_last,
    without_columns,
)
from lib.matrices.pruning import n_pruned, pruning_rates
from lib.training.devices import generator

Weights = dict[str, Tensor]
Row = dict[str, Any]
Source = Callable[[str], torch.Generator]


class Pruned(NamedTuple):
    """A pruned model: what was pruned, and its margins on the test and the training samples."""

    what: Row
    on_test: Tensor
    on_train: Tensor


def prunings(
    model: Weights,
    train: Samples,
    test: Samples,
    *,
    rate_step: float,
    large_rate_step: float,
    values_rate: float,
    random_seed: int,
    seed: int,
) -> Iterator[Row]:
    """Yield what each pruning leaves, as it is and with a factor on the output.

    Neurons go by shares `rate_step` apart, those of a group by shares `large_rate_step` apart, rows
    of W_V by one share. Random orders of a training's `seed` are drawn from the `random_seed`. The
    factor gives the training samples the mean margin that they have in the whole model.
    """

    def source(name: str) -> torch.Generator:
        return generator(random_seed, name, seed)

    pruned = [
        *without_neurons(model, train, test, rate_step, large_rate_step, source),
        without_values(model, train, test, values_rate),
    ]
    dense = pruned[0].on_train.mean()  # the first is of a rate of zero
    for one in pruned:
        scores = numbers(margin_scores(one.on_test, torch.float64))
        rescaled = rescaled_hinge(one.on_test, one.on_train, dense)
        yield one.what | scores | {"rescaled_hinge": rescaled}


def without_neurons(
    model: Weights,
    train: Samples,
    test: Samples,
    rate_step: float,
    large_rate_step: float,
    source: Source,
) -> Iterator[Pruned]:
    """The model without neurons, in every way of `removals`, by shares of those that may go."""
    by_test = neuron_margins(model, model["readout"], test.tokens, test.labels)
    by_train = neuron_margins(model, model["readout"], train.tokens, train.labels)
    norms = vector_norm(model["W_O"], dim=1).cpu()
    of_part = pruning_rates(large_rate_step)
    rates = {
        "neurons": pruning_rates(rate_step),
        "large neurons": of_part,
        "small neurons": [*of_part, 1.0],
        "as many as small": [1.0],
    }
    for way in removals(norms, norms > otsu_threshold(norms), source):
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


def neuron_groups(initial: Weights, model: Weights, mu: Tensor) -> Row:
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
