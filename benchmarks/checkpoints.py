"""The leading 64 singular triplets of one update of 4096 × 4096, and what they leave: ours and what
others use.

The update has singular values that fall about as k^-0.7. peft's and mergekit's way on a CPU is the
whole decomposition with vectors. `torch.svd_lowrank` makes two passes, from the global generator,
and decomposes its small matrix in float32. An error is the squared error of the cut over
the best one, less 1.
"""

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.harness import Contender, Row, race, write_results
from lib.checkpoints.layer_spectra import matrix_row
from lib.checkpoints.update_spectra import (
    OVERSAMPLE,
    gram_singular_values,
    leading_triplets,
    squared_norm,
)
from lib.work.command import run

D_MODEL, RANK = 4096, 64
TAIL = 0.02
METHOD = "auto"
LEADING = 256
# Layers, and how many matrices of each shape are in one, of models in bfloat16 of so many GB.
LAYERS = {
    "Llama-3-8B": (32, {(1024, 4096): 2, (4096, 4096): 2, (14336, 4096): 3}, 16),
    "Llama-3-70B": (80, {(1024, 8192): 2, (8192, 8192): 2, (28672, 8192): 3}, 141),
}


def update(seed: int) -> Tensor:
    """X diag(k^-0.7) Y of Gaussian X and Y."""
    generator = torch.Generator().manual_seed(seed)
    X, Y = torch.randn(2, D_MODEL, D_MODEL, generator=generator)
    return (X * torch.arange(1, D_MODEL + 1) ** -0.7) @ Y / D_MODEL


def contenders(A: Tensor) -> list[Contender]:
    """The contenders, ours first. Every `run` returns leading singular values, largest first."""
    total = squared_norm(A)
    best = total - float(gram_singular_values(A)[:RANK].square().sum())

    def excess(sigma: Tensor) -> float:
        return abs((total - float(sigma.double()[:RANK].square().sum())) / best - 1)

    def one(
        name: str, values: Callable[[], Tensor], goal: float | None = None, note: str = ""
    ) -> Contender:
        return Contender(name, values, excess, TAIL, 1, goal, note)

    n = RANK + OVERSAMPLE  # columns
    return [
        one(
            "ours: a block Krylov space, 64",
            lambda: leading_triplets(A, RANK, torch.Generator().manual_seed(0)).sigma,
        ),
        one(
            "ours: Gram in f64, all 4096",
            lambda: gram_singular_values(A),
            note="all singular values, no vectors",
        ),
        one("torch svd_lowrank, 80", lambda: torch.svd_lowrank(A, q=n, niter=2)[1]),
        one(
            "torch svd f32 with vectors",
            lambda: torch.linalg.svd(A).S,
            20,
            "peft's and mergekit's way on a CPU",
        ),
        weightwatcher(A, excess),
    ]


def weightwatcher(A: Tensor, excess: Callable[[Tensor], float]) -> Contender:
    """WeightWatcher's eigenvalues of a layer whose weight is the update."""
    name = "WeightWatcher get_ESD, all 4096"
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            from weightwatcher import WeightWatcher  # pyright: ignore[reportMissingImports]
    except ImportError:
        return Contender(
            name, None, lambda _: math.nan, TAIL, 1, None, "weightwatcher is not installed"
        )
    model = torch.nn.Sequential(torch.nn.Linear(D_MODEL, D_MODEL, bias=False))
    model[0].weight.data = A.clone()
    watcher = WeightWatcher(model=model)
    [layer] = watcher.describe()["layer_id"]

    def eigenvalues() -> Tensor:
        with contextlib.redirect_stdout(io.StringIO()):
            return (
                torch.tensor(watcher.get_ESD(layer=layer))
                .sort(descending=True)
                .values.clamp(min=0)
                .sqrt()
            )

    return Contender(name, eigenvalues, excess, TAIL, 1, None, "all singular values, no vectors")


def matrix(shape: tuple[int, int]) -> Contender:
    """Measure all numbers of one matrix in bfloat16: norms, leading 256 singular values, tail, edge
    of rounding.
    """
    generator = torch.Generator().manual_seed(0)
    W_0 = torch.randn(shape, generator=generator).bfloat16()
    W = (W_0 + 0.02 * torch.randn(shape, generator=generator)).bfloat16()
    norm = squared_norm(W.float() - W_0.float()) ** 0.5

    def said() -> dict[str, Any]:
        return matrix_row(METHOD, LEADING, "layer", W_0, W)[0]

    rows, cols = shape
    return Contender(f"{rows} × {cols}", said, lambda row: abs(row["norm"] / norm - 1), 1e-6, 1)


def minutes(rows: list[Row]) -> Iterator[str]:
    """The time for the matrices of whole models, from the measured time of each shape."""
    seconds = {row["contender"]: row["cpu_ms"].median / 1000 for row in rows}
    for name, (n_layers, counts, n_bytes) in LAYERS.items():
        layer = sum(n * seconds[f"{a} × {b}"] for (a, b), n in counts.items())
        n = n_layers * sum(counts.values())
        yield (
            f"The {n} matrices of the layers of {name} so take {n_layers * layer / 60:.3g} "
            "minutes of one core, and "
            f"{2 * n_bytes} GB are read beside that (base and tuned, in bfloat16)."
        )


def main(results: Path, shapes: Path, rounds: int = 3, seed: int = 0) -> None:
    sizes = sorted({shape for _, counts, _ in LAYERS.values() for shape in counts}, key=math.prod)
    rows, limits = race([matrix(shape) for shape in sizes], rounds)
    title = (
        "What spectra of a checkpoint take: one matrix, its leading 256 singular values, "
        "tail and edge, by shape"
    )
    notes = [
        "Times are milliseconds a matrix on one thread, without reading it; a ratio is to the "
        "smallest shape; an error "
        "is that of the norm. Up to 4096 on the shorter side all singular values are computed.",
        *minutes(rows),
    ]
    write_results(shapes, title, rows, rounds, ["torch"], limits, notes)
    rows, limits = race(contenders(update(seed)), rounds)
    write_results(
        results,
        f"The leading {RANK} singular triplets of one update of {D_MODEL} × {D_MODEL}",
        rows,
        rounds,
        ["torch", "weightwatcher"],
        limits,
        [
            "Times are milliseconds an update on one thread; a ratio is a contender's CPU time in "
            "units of ours in the "
            "same round; an error is the squared error of the cut over that of the best cut, less "
            "1.",
        ],
    )


if __name__ == "__main__":
    run(main)
