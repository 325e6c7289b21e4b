r"""A head that is trained on one task and tuned on another: the toy of what adapters are for.

The base learns $W_K W_Q^\top$ and $W_V W_O^\top$ of a teacher by gradient descent. It is tuned to a
teacher whose two products differ from that in a few directions, on tokens of another law.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from lib.gradual_rank.full_heads import (
    FullHead,
    full_descent,
    gaussian_factors,
    named,
    output,
    products_of_ranks,
)
from lib.gradual_rank.tasks import tokens_of
from lib.training.attention import PRODUCTS
from lib.training.devices import generator

Square = Float[Tensor, "d d"]
Tokens = Float[Tensor, "sample token d"]


@dataclass(frozen=True)
class HeadTask:
    """The sizes of a head, how its base is trained, and what it is tuned to."""

    n_samples: int
    seq_len: int
    d_model: int
    init_scale: float  # of the base's factors, whose entries have this over √d
    learning_rate: float
    n_steps: int
    changes: tuple[float, ...]  # singular values of what a product of the teacher changes by
    deviations: tuple[float, float]  # of a token's first and last coordinate; in training 1


@dataclass(frozen=True)
class HeadToTune:
    """A base, the tokens and targets of its second task, and the share of the first loss left."""

    base: Mapping[str, Square]  # W_KQ and W_VO, in the papers' row convention
    X: Tokens
    Y: Tokens
    left: float

    def loss(self, updates: Mapping[str, Square]) -> Float[Tensor, ""]:
        """The mean squared error where updates are added to the products.

        They are those of layers with outputs W x, so that they are added transposed.
        """
        W_KQ, W_VO = (self.base[name] + updates[name].mT for name in PRODUCTS)
        return (output(self.X, W_KQ, W_VO) - self.Y).square().mean()


def head_to_tune(seed: int, task: HeadTask) -> HeadToTune:
    """The head of a seed, trained on its first task, with its second."""
    size = (task.n_samples, task.seq_len, task.d_model)
    [X] = tokens_of([seed], *size)
    teacher = gaussian_factors(task.d_model, [seed], "full teacher")
    [W_KQ, W_VO] = products_of_ranks(teacher, [task.d_model])[0][:, 0]
    base, left = trained_base(seed, task, FullHead(X, output(X, W_KQ, W_VO)))
    of_KQ, of_VO = changes(seed, task.d_model, task.changes)
    [Z] = tokens_of([seed], *size, "tokens to tune on")
    Z = Z * torch.linspace(*task.deviations, task.d_model, dtype=Z.dtype)
    return HeadToTune(base, Z, output(Z, W_KQ + of_KQ, W_VO + of_VO), left)


def trained_base(seed: int, task: HeadTask, head: FullHead) -> tuple[dict[str, Square], float]:
    """The products of a head after its descent, and the share of its first loss that is left."""
    drawn = gaussian_factors(task.d_model, [seed], "tuned head's start")[:, :, 0]
    start = named(drawn * task.init_scale / math.sqrt(task.d_model))
    steps = full_descent(head, start, task.learning_rate)
    first = next(steps)
    [last] = itertools.islice(steps, task.n_steps - 1, task.n_steps)
    W = last.weights
    products = {name: W[a] @ W[b].mT for name, (a, b) in PRODUCTS.items()}
    return products, float(last.loss / first.loss)


def changes(seed: int, d: int, values: Sequence[float]) -> Float[Tensor, "product d d"]:
    """A matrix for each product with these singular values, in drawn directions.

    The directions are the columns Q of a QR decomposition of normal entries. They are not quite
    uniform: their signs are those that LAPACK gives them.
    """
    source = generator(seed, "changes of a teacher")
    normal = torch.randn(2, 2, d, d, generator=source, dtype=torch.float64)
    U, V = torch.linalg.qr(normal).Q[..., : len(values)]
    return U * torch.tensor(values, dtype=torch.float64) @ V.mT
