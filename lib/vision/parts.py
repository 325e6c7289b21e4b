"""A loss and its gradient by parts of a batch, added as one binary tree: no bit depends on how many
processes compute them.

Neighbours are added first, ((1 + 2) + (3 + 4)) + ...; a process that has a block of neighbours adds
a branch, and who adds the branches follows the same tree.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from lib.files.files import InputError

Weights = dict[str, Tensor]
Loss = Callable[..., Tensor]
Compute = Callable[
    ..., tuple[Tensor, list[Tensor]]
]  # gives a value, and its gradient in the weights


@dataclass(frozen=True)
class Block:
    """The neighbouring parts of a batch that a rank computes."""

    n_parts: int = 1
    rank: int = 0
    n_ranks: int = 1

    @property
    def parts(self) -> range:
        """The numbers of its parts."""
        n = self.n_parts // self.n_ranks
        return range(self.rank * n, (self.rank + 1) * n)

    def of(self, n_samples: int) -> slice:
        """Which samples are its own in a batch of `n_samples`."""
        n = n_samples // self.n_ranks
        return slice(self.rank * n, (self.rank + 1) * n)


def check_parts(n_parts: int, batch_size: int) -> None:
    """Raise `ValueError` where a batch cannot be cut into so many equal parts, added as a tree."""
    if n_parts < 1 or n_parts & (n_parts - 1):
        raise ValueError(f"parts: wanted a power of two, got {n_parts}")
    if batch_size % n_parts:
        wanted = f"wanted a divisor of the {batch_size} samples of a batch"
        raise ValueError(f"parts: {wanted}, got {n_parts}")


def in_parts(loss: Loss, n_parts: int, group: dist.ProcessGroup | None = None) -> Loss:
    r"""The loss $\frac1P \sum_p \ell(w, \mathrm{part}_p)$ of a batch: $\ell$ itself, where that is
    a mean over samples. Its gradient comes from it as from any other. Each of several processes
    is given its own `Block` of the batch.

    Value and gradient are computed together, part by part, so that memory is needed for one part
    and for at most $1 + \log_2 P$ gradients. The processes of a group each end with the bits that
    one process computes alone. One part is the loss itself.
    """
    if n_parts == 1:
        return loss

    def mean(weights: Weights, *batch: Tensor) -> Float[Tensor, ""]:
        compute = partial(_mean, loss, list(weights), batch, n_parts, group)
        return computed(compute, *weights.values())

    return mean


def computed(compute: Compute, *weights: Tensor) -> Float[Tensor, ""]:
    """A value whose gradient in the weights is computed with it."""
    return _Given.apply(compute, *weights)  # type: ignore[no-any-return]


class _Given(torch.autograd.Function):
    """What autograd asks of `computed`."""

    @staticmethod
    def forward(ctx: Any, compute: Compute, *weights: Tensor) -> Tensor:
        value, gradients = compute(*weights)
        ctx.save_for_backward(*gradients)
        return value

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        return None, *(outer[0] * gradient for gradient in ctx.saved_tensors)


def _mean(
    loss: Loss,
    names: list[str],
    batch: tuple[Tensor, ...],
    n_parts: int,
    group: dist.ProcessGroup | None,
    *weights: Tensor,
) -> tuple[Tensor, list[Tensor]]:
    """The mean loss of the parts, and its gradient in each weight."""
    n_ranks = dist.get_world_size(group) if group else 1
    if n_parts % n_ranks:
        raise InputError(f"ranks: wanted a divisor of {n_parts} parts, got {n_ranks}")
    check_parts(n_parts, len(batch[0]) * n_ranks)
    own = zip(*(tensor.chunk(n_parts // n_ranks) for tensor in batch), strict=True)
    total = tree_sum(_flat(loss, names, weights, part) for part in own)
    if group:
        total = _over_ranks(total, n_ranks, group)
    total /= n_parts  # a power of two: nothing is rounded
    value, *gradients = total.split([1, *(weight.numel() for weight in weights)])
    found = [g.view(weight.shape) for g, weight in zip(gradients, weights, strict=True)]
    return value.squeeze(0).clone(), found


def _flat(
    loss: Loss, names: list[str], weights: tuple[Tensor, ...], part: tuple[Tensor, ...]
) -> Float[Tensor, " n"]:
    """Loss and gradient of one part, as one row of numbers."""
    leaves = [weight.detach().requires_grad_() for weight in weights]
    with torch.enable_grad():
        value = loss(dict(zip(names, leaves, strict=True)), *part)
    gradients = torch.autograd.grad(value, leaves)
    return torch.cat([value.detach().view(1), *(gradient.flatten() for gradient in gradients)])


def tree_sum(terms: Iterable[Tensor]) -> Tensor:
    """The sum of $2^k$ tensors by neighbours; at most k partial sums wait for the next term.

    The terms are used up.
    """
    waiting: list[Tensor] = []
    for number, term in enumerate(terms, 1):
        branch = term
        while number % 2 == 0:
            branch = waiting.pop().add_(branch)
            number //= 2
        waiting.append(branch)
    [total] = waiting
    return total


def _over_ranks(
    flat: Float[Tensor, " n"], n_ranks: int, group: dist.ProcessGroup
) -> Float[Tensor, " n"]:
    """The sum over all ranks, in each: a rank adds its piece of all of them, in the tree's order.

    As many bytes are sent as a ring's all-reduce sends.
    """
    padded = torch.nn.functional.pad(flat, (0, -len(flat) % n_ranks))
    pieces = torch.empty_like(padded)
    dist.all_to_all_single(pieces, padded, group=group)
    total = padded  # its numbers have been sent
    dist.all_gather(list(total.chunk(n_ranks)), tree_sum(pieces.chunk(n_ranks)), group=group)
    return total[: len(flat)]
