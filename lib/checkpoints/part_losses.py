"""The losses of the parts of a batch, from the logits of one call where these explain its loss."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from lib.checkpoints.samples import IGNORED
from lib.checkpoints.texts import Batch, loss_and_output, mean_loss

EXPLAINED = 2e-6  # of a loss: how far the cross entropies of logits may be from it
WIDE = (torch.float32, torch.float64)


def part_losses(model: torch.nn.Module, batches: Sequence[Sequence[Batch]]) -> list[float]:
    """The loss of each part of some batches, which are given in parts.

    A batch is one call of the model where the cross entropies of its logits, with the next token or
    with the label of the same place, have the model's own loss for their mean; else each part is a
    call. After the first batch that its logits do not explain, no later one is tried by one call:
    so a model with a loss of its own costs one call more, and not one for every batch.

    Each part is a call in two more cases: of a classifier, whose right answers are counted call by
    call, and in a narrow type, where what else is in a call moves a logit by more than these losses
    may move.
    """
    found: list[float] = []
    classifier = "Classification" in type(model).__name__
    together = next(model.parameters()).dtype in WIDE and not classifier
    for parts in batches:
        losses = _by_one_call(model, parts) if together and len(parts) > 1 else None
        together = together and (losses is not None or len(parts) < 2)
        found += losses or [mean_loss(model, [part]) for part in parts]
    return found


def _by_one_call(model: torch.nn.Module, parts: Sequence[Batch]) -> list[float] | None:
    """The losses of the parts of a batch by one call; None where its logits do not explain them."""
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    labels = whole.get("labels", whole.get("input_ids"))
    if labels is None or labels.is_floating_point():
        return None
    with torch.no_grad():
        own, output = loss_and_output(model, whole)
        logits = getattr(output, "logits", None)
        if not isinstance(logits, Tensor) or logits.shape[:-1] != labels.shape:
            return None
        bounds = np.cumsum([0, *(len(next(iter(part.values()))) for part in parts)]).tolist()
        rows = [slice(start, stop) for start, stop in pairwise(bounds)]
        for given, wanted in _alignments(logits, labels):
            counts = [int((wanted[some] != IGNORED).sum()) for some in rows]
            losses = [_cross_entropy(given[some], wanted[some]) for some in rows]
            mean = np.average(losses, weights=counts) if all(counts) else np.nan
            if np.isclose(mean, float(own), rtol=EXPLAINED, atol=0):
                return losses
    return None


def _alignments(
    logits: Float[Tensor, "*place word"], labels: Int[Tensor, " *place"]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Logits and the labels that they may be of: those of the next place, and of the same."""
    if labels.dim() == 2:
        yield logits[:, :-1], labels[:, 1:]
    yield logits, labels


def _cross_entropy(logits: Tensor, labels: Tensor) -> float:
    """The mean over the labels that count."""
    flat = logits.float().flatten(0, -2)
    return float(cross_entropy(flat, labels.flatten(), ignore_index=IGNORED))
