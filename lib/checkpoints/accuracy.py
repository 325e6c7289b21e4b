"""How many labels a classifier gets right, counted from the logits that its loss is made of."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from lib.checkpoints.samples import IGNORED

Judged = dict[str, Any]  # losses of parts, and how many labels are right, which JSON can say


@dataclass
class Right:
    """The labels that were counted, and those of them that were right."""

    n_right: int = 0
    n_labels: int = 0


@contextmanager
def counting_right(model: torch.nn.Module) -> Iterator[Right]:
    """Count what a classifier gets right of all that it computes meanwhile; nothing of others.

    A classifier is a model whose class says so, that has a class for every label: the largest of
    its logits is its answer. A label of -100 does not count.
    """
    right = Right()

    def count(_: Any, __: Any, given: Mapping[str, Any], made: Any) -> None:
        labels = given.get("labels")
        logits = getattr(made, "logits", None)
        if labels is None or logits is None or labels.is_floating_point():
            return
        if logits.shape[:-1] == labels.shape and logits.shape[-1] > 1:
            counts = labels != IGNORED
            right.n_right += int(((logits.argmax(-1) == labels) & counts).sum())
            right.n_labels += int(counts.sum())

    if "Classification" not in type(model).__name__:
        yield right
        return
    hook = model.register_forward_hook(count, with_kwargs=True)
    try:
        yield right
    finally:
        hook.remove()


def accuracy(n_right: int, n_labels: int) -> tuple[float, float]:
    """The share of labels that are right, and its noise: two standard errors of a binomial share.

    Both are no number where no label was counted.
    """
    if not n_labels:
        return np.nan, np.nan
    share = n_right / n_labels
    return share, 2 * (share * (1 - share) / n_labels) ** 0.5


def judged(model: torch.nn.Module, losses: Callable[[], list[float]]) -> Judged:
    """Some losses of a model, and how many labels a classifier gets right in the same logits."""
    with counting_right(model) as right:
        return {"losses": losses(), "n_right": right.n_right, "n_labels": right.n_labels}


def said_right(one: Judged, of: str = "") -> dict[str, float]:
    """The accuracy and its noise, under these names with an ending; nothing of no classifier."""
    if not one["n_labels"]:
        return {}
    share, noise = accuracy(one["n_right"], one["n_labels"])
    return {f"accuracy{of}": share, f"accuracy_noise{of}": noise}
