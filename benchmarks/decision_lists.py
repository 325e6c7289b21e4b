r"""The exact population gradient of list attention: ours, autograd's and a loop over sequences; and
Monte Carlo's.

The job is one gradient in W and V at a random W. Monte Carlo's row is one estimate whose relative
error of the gradient in W is about 1 %.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import Contender, race, write_results
from lib.decision_lists.attention import Rows, loss_gradients, row_losses, sequence_outputs
from lib.decision_lists.flow import exchangeable_loss_gradient
from lib.decision_lists.lists import (
    cyclic_lists,
    determining_tokens,
    label_matrix,
    product_law,
    subsets,
)
from lib.work.command import run

SIZES = ((8, 4), (10, 5), (12, 6), (14, 7))
SCALE = 5.0


class Job:
    """A task of L tokens and sequences of n, and the gradient that is wanted."""

    def __init__(self, n_tokens: int, seq_len: int):
        self.lists = cyclic_lists(n_tokens, 3)
        self.counts = subsets(n_tokens, seq_len)
        self.law = product_law(self.counts, torch.linspace(1, 3, n_tokens, dtype=torch.float64))
        self.star, self.place = determining_tokens(self.counts, self.lists)
        self.rows = Rows.of(self.counts, self.law, self.star, self.place)
        self.pi = torch.arange(n_tokens).roll(1)
        self.V = SCALE * label_matrix(self.pi.tolist())
        draw = torch.Generator().manual_seed(0)
        self.W = torch.randn(n_tokens, n_tokens, generator=draw, dtype=torch.float64)
        self.tokens = torch.nonzero(self.counts)[:, 1].view(-1, seq_len)
        self.draw = draw

    def exact(self) -> tuple[Tensor, Tensor]:
        return loss_gradients(self.W, self.V, self.rows, self.pi)[1:]

    def by_autograd(self) -> tuple[Tensor, ...]:
        W = self.W.clone().requires_grad_()
        V = self.V.clone().requires_grad_()
        return torch.autograd.grad(self.rows.weight @ row_losses(W, V, self.rows, self.pi), (W, V))

    def by_sequences(self) -> tuple[Tensor, ...]:
        """Autograd through the model as the paper writes it, on one-hot sequences."""
        W = self.W.clone().requires_grad_()
        V = self.V.clone().requires_grad_()
        labels = self.pi[self.star.gather(1, self.tokens)]
        right = sequence_outputs(self.tokens, W, V).gather(1, labels[:, None])[:, 0]
        return torch.autograd.grad(-(self.law @ right.mean(1)), (W, V))

    def error(self, found: tuple[Tensor, ...]) -> float:
        return max(float((a - b).abs().max()) for a, b in zip(found, self.exact(), strict=True))

    def sampled(self, n_samples: int) -> tuple[Tensor, Tensor]:
        """The gradient of as many sequences drawn from the law."""
        sample = torch.multinomial(self.law, n_samples, replacement=True, generator=self.draw)
        chance = torch.full((n_samples,), 1 / n_samples, dtype=torch.float64)
        rows = Rows.of(self.counts[sample], chance, self.star[sample], self.place[sample])
        return loss_gradients(self.W, self.V, rows, self.pi)[1:]

    def relative(self, found: tuple[Tensor, ...]) -> float:
        wanted = self.exact()[0]
        return float((found[0] - wanted).norm() / wanted.norm())

    def samples_for(self, error: float) -> int:
        """The number of samples for a relative error: it is measured at 4096 samples, and falls as
        the inverse root.
        """
        measured = [self.relative(self.sampled(4096)) ** 2 for _ in range(5)]
        return math.ceil(4096 * sum(measured) / len(measured) / error**2)


def contenders() -> list[Contender]:
    """The contenders, ours first: the exact gradient at the largest size; then its growth, others,
    the closed form, Monte Carlo.
    """
    jobs = {sizes: Job(*sizes) for sizes in SIZES}
    largest = jobs[SIZES[-1]]
    found = []
    for (n_tokens, seq_len), job in reversed(jobs.items()):
        note = f"{len(job.law)} sets, {len(job.rows.weight)} rows"
        found.append(
            Contender(
                f"ours: exact, L = {n_tokens}, n = {seq_len}",
                job.exact,
                job.error,
                1e-12,
                1,
                None,
                note,
            )
        )
    found.append(
        Contender("autograd through the rows, L = 14", largest.by_autograd, largest.error, 1e-12, 1)
    )
    found.append(
        Contender(
            "autograd through sequences, L = 14", largest.by_sequences, largest.error, 1e-12, 1
        )
    )
    w = torch.tensor([0.0, 0.4, 0.3, 0.2, 0.1], dtype=torch.float64)

    def closed() -> tuple[Tensor, Tensor]:
        return exchangeable_loss_gradient(w, 10_000, 100, 50.0)

    found.append(
        Contender("ours: closed form, L = 10,000, n = 100, m = 4", closed, _slope_error(w), 1e-6, 1)
    )
    some, many = (largest.samples_for(bar) for bar in (0.01, 0.001))
    note = f"{some} samples; 0.1 % takes {many}"
    estimate = partial(largest.sampled, some)
    found.append(
        Contender("Monte Carlo to 1 %, L = 14", estimate, largest.relative, 0.02, 1, None, note)
    )
    return found


def _slope_error(w: Tensor) -> Callable[[tuple[Tensor, Tensor]], float]:
    """The error of the gradient against central differences of the loss."""

    def error(found: tuple[Tensor, Tensor]) -> float:
        gaps = []
        for i in range(1, len(w)):
            step = 1e-5 * torch.eye(len(w), dtype=torch.float64)[i]
            up, down = (
                float(exchangeable_loss_gradient(w + s * step, 10_000, 100, 50.0)[0])
                for s in (1, -1)
            )
            gaps.append(abs((up - down) / 2e-5 - float(found[1][i])))
        return max(gaps) if not math.isnan(sum(gaps)) else math.inf

    return error


def main(results: Path, rounds: int = 15) -> None:
    rows, limits = race(contenders(), rounds)
    write_results(
        results,
        "The gradient of the population loss of list attention",
        rows,
        rounds,
        ["torch"],
        limits,
        [
            "Times are milliseconds a gradient in W and V on one thread, float64. Goals on one "
            "core: at most 50 ms at "
            "L = 14, n = 7, and 300 ms for the closed form at L = 10,000.",
        ],
    )


if __name__ == "__main__":
    run(main)
