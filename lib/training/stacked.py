"""Several trainings as one, whose tensors have a leading axis that counts the trainings.

The tensors of a single training have no such axis. A tensor that holds one number, such as the
optimiser's count of steps, is common to all trainings.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vmap

Tensors = dict[str, Tensor]
Training = TypeVar("Training")


def groups(
    trainings: Iterable[Training], rule: Callable[[Training], Hashable], n: int
) -> list[list[Training]]:
    """The trainings in groups of at most `n` that share a rule, in their order."""
    alike: dict[Hashable, list[Training]] = {}
    for training in trainings:
        alike.setdefault(rule(training), []).append(training)
    return [found[i : i + n] for found in alike.values() for i in range(0, len(found), n)]


def together(parts: Sequence[Tensors]) -> Tensors:
    """The tensors of several trainings as one."""
    if len(parts) == 1:
        return dict(parts[0])
    first = parts[0]
    return {
        name: torch.stack([part[name] for part in parts]) if W.ndim else W
        for name, W in first.items()
    }


def apart(whole: Tensors, n: int) -> list[Tensors]:
    """The tensors of each of `n` trainings: the inverse of `together`."""
    if n == 1:
        return [whole]
    return [{name: W[i] if W.ndim else W for name, W in whole.items()} for i in range(n)]


def joined(batches: Sequence[Iterable[tuple[Tensor, ...]]]) -> Iterator[tuple[Tensor, ...]]:
    """The batches of several trainings as one; a single training keeps its batches as they are."""
    if len(batches) == 1:
        yield from batches[0]
        return
    for parts in zip(*batches, strict=True):
        yield tuple(torch.stack(tensors) for tensors in zip(*parts, strict=True))


class Losses:
    """The sum of the losses of `n` trainings; its gradient in the weights of one training is the
    gradient of that training's own loss.

    `tally` holds, for each training, the sum and the number of its losses since the means were last
    asked for.
    """

    def __init__(
        self,
        loss: Callable[..., Tensor],
        n: int,
        device: torch.device | str = "cpu",
        wrap: Callable[[Callable], Callable] = lambda loss: loss,
    ):
        self._each = wrap(loss if n == 1 else vmap(loss))
        self.tally: Float[Tensor, "*training 2"] = torch.zeros(n, 2, device=device).squeeze(0)

    def __call__(self, weights: Tensors, *batch: Tensor) -> Float[Tensor, ""]:
        """The sum of the losses, each on the batch of its training."""
        losses = self._each(weights, *batch)
        self.tally += torch.stack([losses.detach(), torch.ones_like(losses)], -1)
        return losses.sum()

    def means(self) -> Float[Tensor, "*training"]:
        """The mean loss of each training over the batches since the means were last asked for; NaN
        where there was no batch.
        """
        found = self.tally[..., 0] / self.tally[..., 1]
        self.tally.zero_()
        return found
