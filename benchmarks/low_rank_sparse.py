"""The one-layer Transformer: ways to compute the gradients of many seeds, and what smaller models
save.

The gradients: one step of a stack of seeds, by our closed form one seed at a time, by the same on
the stacked seeds, by autograd one seed at a time, and by `torch.func.vmap(grad)`. They agree to
1e-6. Which is fastest turns with the size: stacking pays where a step is so small that calls
dominate; on a GPU (`--device cuda`), where many seeds fill it.

The smaller models: the forward pass without a share of the neurons.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import Contender, Row, Spread, race, write_results
from lib.low_rank_sparse.one_layer import (
    MATRICES,
    Weights,
    hinge,
    initial_weights,
    loss_gradient,
    margins,
    outputs,
    random_readout,
)
from lib.low_rank_sparse.patterns import PatternTask, draw_samples, orthonormal_patterns
from lib.training.devices import generator, keep_freed_memory
from lib.work.command import run

D_MODEL = 20
N_PATTERNS = 15
Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class Size:
    """The size of a step: tokens, batch, neurons, and how many seeds."""

    seq_len: int
    batch: int
    n_neurons: int
    n_seeds: int

    def __str__(self) -> str:
        return f"L {self.seq_len}, B {self.batch}, m {self.n_neurons}, {self.n_seeds} seeds"


SIZES = [
    Size(20, 16, 32, 16),
    Size(20, 16, 32, 64),
    Size(20, 16, 100, 16),
    Size(40, 50, 200, 16),
    Size(40, 50, 1000, 8),
    Size(80, 50, 200, 16),
]
GPU_SIZES = [Size(40, 50, 1000, n) for n in (64, 256, 1024)]


def stack(size: Size, device: torch.device) -> tuple[Weights, Tensor, Tensor, Tensor]:
    """Weights, readout, tokens and labels of every seed, stacked."""
    n_relevant = max(2, round(0.15 * size.seq_len))
    task = PatternTask(D_MODEL, N_PATTERNS, size.seq_len, n_relevant, 1, 0.01)
    weights = []
    rest = []
    for seed in range(size.n_seeds):
        g = generator(seed, "benchmark")
        weights.append(initial_weights(D_MODEL, size.n_neurons, 0.1, g))
        readout = random_readout("tied", 1, size.seq_len, size.n_neurons, g)
        samples = draw_samples(task, orthonormal_patterns(task, g), size.batch, g)
        rest.append((readout, samples.tokens, samples.labels))
    stacked = {name: torch.stack([w[name] for w in weights]).to(device) for name in MATRICES}
    readout, X, labels = (torch.stack(parts).to(device) for parts in zip(*rest, strict=True))
    return stacked, readout, X, labels


def gradients(size: Size, device: torch.device) -> list[Contender]:
    """The contenders, ours first: the closed form, seed by seed on a CPU, stacked on a GPU."""
    weights, readout, X, labels = stack(size, device)
    seeds = [
        ({name: W[i] for name, W in weights.items()}, readout[i], X[i], labels[i])
        for i in range(size.n_seeds)
    ]

    def loss(weights: Weights, readout: Tensor, X: Tensor, labels: Tensor) -> Tensor:
        return hinge(margins(outputs(weights, readout, X), labels)).mean()

    def joined(found: list[Gradients]) -> Gradients:
        return {name: torch.stack([slopes[name] for slopes in found]) for name in MATRICES}

    def by_autograd(weights: Weights, *rest: Tensor) -> Gradients:
        free = {name: W.detach().clone().requires_grad_() for name, W in weights.items()}
        return dict(
            zip(free, torch.autograd.grad(loss(free, *rest), list(free.values())), strict=True)
        )

    def timed(function: Callable[[], Gradients]) -> Callable[[], Gradients]:
        def job() -> Gradients:
            found = function()
            if device.type == "cuda":
                torch.cuda.synchronize()
            return found

        return job

    vectorised = torch.func.vmap(torch.func.grad(loss))
    ways = {
        "closed form, a seed at a time": lambda: joined(
            [loss_gradient(*seed)[1] for seed in seeds]
        ),
        "closed form, stacked": lambda: loss_gradient(weights, readout, X, labels)[1],
        "autograd, a seed at a time": lambda: joined([by_autograd(*seed) for seed in seeds]),
        "vmap(grad)": lambda: vectorised(weights, readout, X, labels),
    }
    wanted = ways["autograd, a seed at a time"]()

    def error(found: Gradients) -> float:
        return max(float((found[name] - wanted[name]).abs().max()) for name in MATRICES)

    names = (
        list(ways)
        if device.type == "cpu"
        else ["closed form, stacked", *(n for n in ways if "stacked" not in n)]
    )
    return [
        Contender(f"{size}: {name}", timed(ways[name]), error, 1e-6, size.n_seeds) for name in names
    ]


def smaller() -> list[Contender]:
    """Forward passes of 100 samples without a share of the neurons; ratios are to the whole
    model.
    """
    weights, readout, X, _ = (part for part in stack(Size(40, 100, 1000, 1), torch.device("cpu")))
    whole = {name: W[0] for name, W in weights.items()}
    n = len(whole["W_O"])

    def contender(share: float) -> Contender:
        kept = round(share * n)
        model = whole | {"W_O": whole["W_O"][:kept].contiguous()}
        a = readout[0, ..., :kept].contiguous()
        right = outputs(model, a, X[0])
        return Contender(
            f"{kept} of {n} neurons",
            lambda: outputs(model, a, X[0]),
            lambda F: float((F - right).abs().max()),
            1e-6,
            100,
        )

    return [contender(share) for share in (1.0, 0.7, 0.5, 0.35)]


def main(steps: Path, models: Path, rounds: int = 9, device: str = "cpu") -> None:
    keep_freed_memory()
    rows: list[Row] = []
    limits: dict[str, Spread] = {}
    for size in SIZES if device == "cpu" else GPU_SIZES:
        found, limits = race(gradients(size, torch.device(device)), rounds)
        rows += found
    notes = [
        "Times are milliseconds a seed and step; a ratio is to the first of its size; an error is "
        "to autograd's."
    ]
    write_results(
        steps,
        "Gradients of a step of the one-layer Transformer",
        rows,
        rounds,
        ["torch"],
        limits,
        notes,
    )
    rows, limits = race(smaller(), rounds)
    notes = ["Times are milliseconds a sample on one thread; a ratio is to the whole model's time."]
    write_results(
        models,
        "Forward pass without a share of the neurons",
        rows,
        rounds,
        ["torch"],
        limits,
        notes,
    )


if __name__ == "__main__":
    run(main)
