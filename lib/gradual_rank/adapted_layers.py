r"""Layers that get an adapter, and the adapter's draw: what every seed of `adapter_start` is.

A layer is a matrix W with outputs W x. A head's is $W_V W_O^\top$ transposed, as the papers' rows
are x W.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lib.gradual_rank.adapter_start import LinearPull, Vector, learned_of
from lib.gradual_rank.full_heads import FullHead, gaussian_factors, output, products_of_ranks
from lib.gradual_rank.tasks import tokens_of
from lib.training.devices import generator

Start = Literal["zero", "both", "output"]


def change(seed: int, d: int, targets: Sequence[float]) -> Float[Tensor, "d d"]:
    """A matrix with these singular values, in directions that are drawn uniformly."""
    source = generator(seed, "adapter's task")
    normal = torch.randn(2, d, d, generator=source, dtype=torch.float64)
    U, V = torch.linalg.qr(normal).Q[..., : len(targets)]
    return U * torch.tensor(targets, dtype=torch.float64) @ V.mT


def pull_of_matrix(seed: int, d: int, targets: Sequence[float]) -> LinearPull:
    r"""The pull of the loss $\|M - W\|_F^2 / 2$, where $M - W_0$ is the `change`."""
    return LinearPull(change(seed, d, targets).numpy(), np.eye(d))


def pull_of_head(
    seed: int, n_samples: int, seq_len: int, d: int, targets: Sequence[float]
) -> LinearPull:
    r"""The pull on $W_V W_O^\top$ of a head whose teacher differs from it by the `change` there.

    The head W₀ has entries of variance 1 / d in both products; its attention stays. The pull is
    minus the gradient of the mean squared error at W₀, and its curvature is 2 / d times the second
    moment of what is attended to.
    """
    [X] = tokens_of([seed], n_samples, seq_len, d, "adapter's tokens")
    [W_KQ, W_VO] = products_of_ranks(gaussian_factors(d, [seed], "adapter's base"), [d])[0][:, 0]
    teacher = W_VO + change(seed, d, targets).mT
    _, _, G = FullHead(X, output(X, W_KQ, teacher)).loss_and_gradients(W_KQ, W_VO)
    Z = output(X, W_KQ, torch.eye(d, dtype=torch.float64)).flatten(0, 1)
    return LinearPull(G.T.numpy().copy(), (2 * Z.T @ Z / X.numel()).numpy())


def factors_of(
    seed: int, d: int, rank: int, log10_scale: float, start: Start, beside: float
) -> tuple[Float[np.ndarray, "d r"], Float[np.ndarray, "r d"]]:
    """An adapter's B and A at the start: entries of A are N(0, scale² / d).

    B is `zero`, or, as in `both`, drawn as A is; where the scale is of the `output` alone, B has
    it, and A has log10 of its scale `beside`.
    """
    A = torch.randn(rank, d, generator=generator(seed, "adapter", rank), dtype=torch.float64)
    B = torch.randn(d, rank, generator=generator(seed, "output", rank), dtype=torch.float64)
    of_B, of_A = {
        "zero": (0.0, 10.0**log10_scale),
        "both": (10.0**log10_scale, 10.0**log10_scale),
        "output": (10.0**log10_scale, 10.0**beside),
    }[start]
    root = math.sqrt(d)
    return (B * of_B / root).numpy(), (A * of_A / root).numpy()


@dataclass(frozen=True)
class Adam:
    """Adam on both factors, with torch's other defaults, for at most so many steps."""

    rate: float
    n_steps: int

    def times(
        self,
        pull: LinearPull,
        factors: tuple[np.ndarray, np.ndarray],
        aims: Vector,
        scaling: float,
    ) -> tuple[Vector, Float[np.ndarray, " time"], Float[np.ndarray, "time n"]]:
        """As `times_in_flow`, where time is the number of steps times the rate."""
        every: list[Vector] = []
        for learned in itertools.islice(
            self._course(pull, factors, len(aims), scaling), self.n_steps + 1
        ):
            every.append(learned)
            if (learned >= aims).all():
                break
        course = np.array(every)
        times = np.arange(len(course)) * self.rate
        reached = course >= aims
        return np.where(reached.any(0), times[reached.argmax(0)], np.inf), times, course

    def _course(
        self, pull: LinearPull, factors: tuple[np.ndarray, np.ndarray], n: int, scaling: float
    ) -> Iterator[Vector]:
        """What is learned of each direction, before every step."""
        U, _, V = pull.triplets(n)
        B, A = (torch.from_numpy(factor.copy()) for factor in factors)
        optimizer = torch.optim.Adam([B, A], lr=self.rate)
        while True:
            update = (scaling * B @ A).numpy()
            yield learned_of(U, update, V)
            G = torch.from_numpy(pull.at(update))
            B.grad = -scaling * G @ A.T
            A.grad = -scaling * B.T @ G
            optimizer.step()
