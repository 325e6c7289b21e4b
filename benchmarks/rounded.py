"""A training step of the paper's vision transformer in bfloat16 on one core of a CPU: gradient and
update, with the gradient written out, beside the step that torch compiles under autocast.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.harness import Contender, race, write_results
from lib.training.devices import generator, keep_freed_memory, use_threads
from lib.training.sgd import State, sgd
from lib.vision.parts import in_parts
from lib.vision.rounded import rounded_loss
from lib.vision.vit import ViT, Weights, training_loss
from lib.work.command import run

SHAPE = (3, 32, 32)
N_CLASSES = 10
MODEL = ViT(patch_size=4, d_model=512, n_heads=8, d_head=128, d_mlp=512, n_layers=6)
PARTS = 16  # in which float32 computes a batch
BAR = 0.02  # bfloat16 rounds to 2⁻⁹ of a number
GOAL = 1.5
LEARNING_RATE = 1e-4


def contenders(batch: int) -> list[Contender]:
    """Steps from the same weights."""
    source = generator(0, "images")
    x = torch.randn(batch, *SHAPE, generator=source)
    y = torch.randint(0, N_CLASSES, (batch,), generator=source)
    weights = MODEL.initial_weights(SHAPE, N_CLASSES, 1.0, "layers", generator(0, "weights"))

    def exact(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        return training_loss(weights, x, y, "float32")

    def autocast(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        return training_loss(weights, x, y, "bfloat16")

    right = gradient(in_parts(exact, PARTS), weights, x, y)
    square = sum(float(g.square().sum()) for g in right.values())

    def contender(
        name: str, loss: Callable[[Weights, Tensor, Tensor], Tensor], goal: float | None = None
    ) -> Contender:
        steps = course(loss, weights, x, y)

        def error(_: State) -> float:
            found = gradient(loss, weights, x, y)
            wrong = sum(float((found[k] - g).square().sum()) for k, g in right.items())
            return (wrong / square) ** 0.5

        return Contender(name, lambda: next(steps), error, BAR, batch, goal)

    return [
        contender("ours: the gradient written out", rounded_loss),
        contender("autocast, compiled", torch.compile(autocast), GOAL),
    ]


def gradient(
    loss: Callable[[Weights, Tensor, Tensor], Tensor], weights: Weights, x: Tensor, y: Tensor
) -> Weights:
    """The gradient of the loss in each weight."""
    leaves = {name: w.clone().requires_grad_() for name, w in weights.items()}
    found = torch.autograd.grad(loss(leaves, x, y), list(leaves.values()))
    return dict(zip(leaves, found, strict=True))


def course(
    loss: Callable[[Weights, Tensor, Tensor], Tensor], weights: Weights, x: Tensor, y: Tensor
) -> Iterator[State]:
    """A training by Adam, always on the same batch."""

    def same() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield x, y

    return sgd(
        loss,
        State(0, weights),
        same(),
        10**6,
        optimizer="adam",
        learning_rate=LEARNING_RATE,
        warmup_steps=0,
    )


def main(results: Path, batch: int = 512, rounds: int = 3) -> None:
    use_threads(1)
    keep_freed_memory()
    rows, limits = race(contenders(batch), rounds)
    notes = [
        "Times are milliseconds an image, of gradient and update by Adam; an error is that of all "
        "gradients together at the initial weights, relative to float32.",
    ]
    write_results(
        results,
        f"A training step of the paper's vision transformer in bfloat16 on a CPU, batch {batch}",
        rows,
        rounds,
        ["torch"],
        limits,
        notes,
    )


if __name__ == "__main__":
    run(main)
