"""Pruning: masks of a magnitude sweep beside torch.nn.utils.prune, and what really smaller models
save.

The sweep: nine rates of the 9.4 million weights of the matrices of the paper's CIFAR transformer
with head dimension 64, ranked together. The smaller models: the forward pass of that transformer
with half of its heads, its MLP neurons or both removed, beside the operations that are left.
"""

from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils import prune

from benchmarks.harness import Contender, race, write_results
from lib.matrices.pruning import magnitude_masks
from lib.training.devices import generator
from lib.vision.vit import (
    MATRICES,
    ViT,
    Weights,
    forward_flops,
    logits,
    remove_heads,
    remove_neurons,
)
from lib.work.command import run

RATES = [k / 10 for k in range(1, 10)]
SHAPE = (3, 32, 32)
MODEL = ViT(patch_size=4, d_model=512, n_heads=8, d_head=64, d_mlp=512, n_layers=6)


def sweep(weights: Weights) -> list[Contender]:
    """All nine masks; the result is the number of weights that stay at each rate and the masks of
    the fifth.
    """
    matrices = {name: weights[name] for name in MATRICES}

    def ours() -> list[Tensor]:
        return [
            torch.cat([m.flatten() for m in masks.values()])
            for _, masks in magnitude_masks(matrices, RATES)
        ]

    def torchs() -> list[Tensor]:
        found = []
        for rate in RATES:
            modules = [torch.nn.Module() for _ in matrices]
            for module, W in zip(modules, matrices.values(), strict=True):
                module.weight = torch.nn.Parameter(W)
            prune.global_unstructured(
                [(m, "weight") for m in modules], prune.L1Unstructured, amount=rate
            )
            found.append(torch.cat([m.weight_mask.flatten() for m in modules]).bool())
        return found

    wanted = ours()

    def error(masks: list[Tensor]) -> float:
        return max(
            float((mask != right).double().mean())
            for mask, right in zip(masks, wanted, strict=True)
        )

    n = len(RATES)
    return [
        Contender("ours: one partial sort", ours, error, 0.0, n),
        Contender("torch.nn.utils.prune", torchs, error, 1e-6, n, goal=8),
    ]


def smaller(weights: Weights) -> list[Contender]:
    """Forward passes of a batch of 16; ratios are to the whole model, the operations stand in the
    notes.
    """
    images = torch.randn(16, *SHAPE, generator=generator(0, "images"))
    half_heads, half_neurons = (
        torch.arange(n // 2).expand(MODEL.n_layers, -1) for n in (MODEL.n_heads, MODEL.d_mlp)
    )
    models = {
        "whole": weights,
        "half of the MLP neurons": remove_neurons(weights, half_neurons),
        "half of the heads": remove_heads(weights, half_heads),
        "half of both": remove_neurons(remove_heads(weights, half_heads), half_neurons),
    }
    whole = forward_flops(weights)

    def contender(name: str, model: Weights) -> Contender:
        left = forward_flops(model) / whole
        with torch.no_grad():
            right = logits(model, images)

        def forward() -> Tensor:
            with torch.no_grad():
                return logits(model, images)

        return Contender(
            name,
            forward,
            lambda z: float((z - right).abs().max()),
            1e-5,
            16,
            None,
            f"{left:.3f} of the operations",
        )

    return [contender(name, model) for name, model in models.items()]


def main(masks: Path, models: Path, rounds: int = 9) -> None:
    weights = MODEL.initial_weights(SHAPE, 10, 1.0, "layers", generator(0, "weights"))
    n = sum(weights[name].numel() for name in MATRICES)
    rows, limits = race(sweep(weights), max(3, rounds // 3))
    title = f"Masks of {len(RATES)} pruning rates of {n / 1e6:.1f} million weights"
    notes = [
        "Times are milliseconds a rate; an error is the share of the weights whose mask differs."
    ]
    write_results(masks, title, rows, max(3, rounds // 3), ["torch", "numpy"], limits, notes)
    rows, limits = race(smaller(weights), rounds)
    notes = [
        "Times are milliseconds an image on one thread, float32; a ratio is to the whole model's "
        "time."
    ]
    write_results(
        models, "Forward pass of really smaller models", rows, rounds, ["torch"], limits, notes
    )


if __name__ == "__main__":
    run(main)
