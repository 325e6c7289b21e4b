"""The losses of a fine-tune after weights, or entries of its updates, were removed."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np

from lib.checkpoints.gains import GainMeasure, LinearUpdates
from lib.matrices.pruning import pruned_states
from lib.training.devices import generator
from lib.work.cells import Keep

SEED = 0  # of what is pruned at random
APART = 4  # times the median size of an entry: larger or smaller ones are pruned on their own


def pruned(
    rates: Sequence[float], measure: GainMeasure, keep: Keep
) -> Iterator[tuple[str, float, float]]:
    """What is gone, which share of it, and the loss."""
    linear = measure.linear
    source = partial(generator, SEED)
    groups = [
        pruned_states(
            {name: linear.base[name] for name in names},
            {name: linear.tuned[name] for name in names},
            rates,
            source,
        )
        for names in of_like_size(linear)
    ]
    for states in zip(*groups, strict=True):
        what, rate, _ = states[0]
        linear.set(chain.from_iterable(weights for *_, weights in states))
        lost = partial(linear.mean_loss, measure.batches)
        yield what, rate, keep(f"{what} {rate}", lost)


def of_like_size(linear: LinearUpdates) -> list[list[str]]:
    """The modules whose entries are ranked together, and each of the others on its own.

    A module is one of the others where the root mean square of its weights, or of its update, is
    less than a quarter of the median over modules, or more than four times it. Ranked with the rest
    such a module would be removed whole, or not at all: of one encoder whose pooler had small
    weights, the smallest half of all weights had the whole pooler.
    """
    sizes = []
    for name, W in linear.tuned.items():
        W, W_0 = W.float(), linear.base[name].float()
        sizes.append([float(of.norm()) / W.numel() ** 0.5 for of in (W, W - W_0)])
    median = np.median(sizes, axis=0)
    alike = [
        bool(((size >= median / APART) & (size <= median * APART)).all())
        for size in np.array(sizes)
    ]
    names = list(linear.tuned)
    together = [name for name, one in zip(names, alike, strict=True) if one]
    apart = [[name] for name, one in zip(names, alike, strict=True) if not one]
    return [*([together] if together else []), *apart]
