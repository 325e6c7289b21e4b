"""Rules that are measured on the samples that choose, until they are far above the best one."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch

from lib.checkpoints.gains import GainMeasure, Parts
from lib.checkpoints.plans import Ranks
from lib.work.cells import Keep
from lib.work.progress import advance

HEAT = 8  # parts of the samples that choose, at least, after which a rule may be out
QUARTER = 4  # and a quarter of them
BEHIND = 1.5  # times the noise: so far above the best one it is


def raced(
    model: torch.nn.Module,
    measure: GainMeasure,
    parts: Parts,
    of_rule: Mapping[str, Ranks],
    keep: Keep,
) -> dict[str, list[float]]:
    """The losses of the parts that choose, of the rules that are still in after the first quarter
    of them (or `HEAT`): uniform, and those that are not `far_above` the best.
    """
    n_parts = len(parts.batches)
    ends = sorted({min(max(HEAT, n_parts // QUARTER), n_parts), n_parts})
    found: dict[str, list[float]] = {rule: [] for rule in of_rule}
    for begin, end in pairwise([0, *ends]):
        lost = measure.on(model, parts, slice(begin, end))
        for rule, losses in found.items():
            ranks = of_rule[rule]
            name = f"choosing {begin} to {end}, on the base {ranks}"
            losses += keep(name, partial(lost, ranks))
        if end < n_parts:
            for rule in far_above(found, parts.weights[:end]):
                del found[rule]
                advance()  # the bar waits for no loss of a rule that is out
    return found


def far_above(losses: Mapping[str, Sequence[float]], weights: np.ndarray) -> list[str]:
    """All rules but uniform whose losses on some weighted parts are above the best rule's by more
    than `BEHIND` times the noise.

    The noise is two standard errors of the paired differences over parts. Where a loss is no
    number, no rule is out.
    """
    table = np.array(list(losses.values()))
    if not np.isfinite(table).all() or len(weights) < 2:
        return []
    weights = weights / weights.sum()
    pairs = table - table[np.argmin(table @ weights)]
    above = pairs @ weights
    n = len(weights)
    noise = 2 * np.sqrt((pairs - above[:, None]) ** 2 @ weights**2 * n / (n - 1))
    far = above > BEHIND * noise
    return [rule for rule, one in zip(losses, far, strict=True) if one and rule != "uniform"]
