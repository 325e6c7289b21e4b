"""The leading 64 singular triplets of one update of 4096 × 4096, and what they leave: ours and what others use.

The update has singular values that fall about as k^-0.7. peft's and mergekit's way on a CPU is the whole decomposition
with vectors. `torch.svd_lowrank` does the same passes as ours, from the global generator, and
decomposes its small matrix in float32. An error is the squared error of the cut over the best one, less 1.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import Contender, race, write_results
from lib.analysis.update_spectra import OVERSAMPLE, PASSES, gram_singular_values, leading_triplets, squared_norm
from lib.io.command import run

D_MODEL, RANK = 4096, 64
TAIL = 0.02


def update(seed: int) -> Tensor:
    """X diag(k^-0.7) Y of Gaussian X and Y."""
    generator = torch.Generator().manual_seed(seed)
    X, Y = torch.randn(2, D_MODEL, D_MODEL, generator=generator)
    return (X * torch.arange(1, D_MODEL + 1) ** -0.7) @ Y / D_MODEL


def contenders(A: Tensor) -> list[Contender]:
    """Ours first. Every `run` returns leading singular values, largest first."""
    total = squared_norm(A)
    best = total - float(gram_singular_values(A)[:RANK].square().sum())

    def excess(sigma: Tensor) -> float:
        return abs((total - float(sigma.double()[:RANK].square().sum())) / best - 1)

    def one(name: str, values: Callable[[], Tensor], goal: float | None = None, note: str = "") -> Contender:
        return Contender(name, values, excess, TAIL, 1, goal, note)

    n = RANK + OVERSAMPLE
    return [
        one("ours: randomised, 64", lambda: leading_triplets(A, RANK, torch.Generator().manual_seed(0)).sigma),
        one("ours: Gram in f64, all 4096", lambda: gram_singular_values(A), note="all singular values, no vectors"),
        one("torch svd_lowrank, 80", lambda: torch.svd_lowrank(A, q=n, niter=PASSES)[1]),
        one("torch svd f32 with vectors", lambda: torch.linalg.svd(A).S, 20, "peft's and mergekit's way on a CPU"),
    ]


def main(results: Path, rounds: int = 3, seed: int = 0) -> None:
    rows, limits = race(contenders(update(seed)), rounds)
    write_results(
        results,
        f"The leading {RANK} singular triplets of one update of {D_MODEL} × {D_MODEL}",
        rows,
        rounds,
        ["torch"],
        limits,
        [
            "Times are milliseconds an update on one thread; a ratio is a contender's CPU time in units of ours in the "
            "same round; an error is the squared error of the cut over that of the best cut, less 1.",
        ],
    )


if __name__ == "__main__":
    run(main)
