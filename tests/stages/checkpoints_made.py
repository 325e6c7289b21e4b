"""Checkpoints and params for tests of the stages of `checkpoints`: tiny models, tuned by noise or by a few steps."""

from pathlib import Path

import torch
from transformers_made import made, moved, saved

SPECTRA = {"method": "auto", "rank": 8, "rotary_offsets": [0, 3]}
PLAN = {"n_shuffles": 2, "n_points": 2, "max_loss_share": 0.5, "pruning_rates": [0.0, 0.5], "device": "cpu"}
MEASURE = {"budgets": [1, 3], "n_batches": 2, "n_measured_batches": 2, "batch_size": 4, "seq_len": 16}
TEXT = (b"the cat sat on the mat. " * 30)[:512]


def taught(kind: str, folder: Path, n_steps: int = 12) -> tuple[Path, Path]:
    """A base, and what a few steps of gradient descent on TEXT made of all its weights: folders."""
    model = made(kind)
    base = saved(model, folder / "base")
    tokens = torch.frombuffer(bytearray(TEXT), dtype=torch.uint8).long().view(-1, 16)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(n_steps):
        optimiser.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimiser.step()
    return base, saved(model, folder / "tuned")


def noisy(kind: str, folder: Path) -> tuple[Path, Path]:
    """A base, and three snapshots of two runs, each farther from it."""
    model = made(kind)
    base = saved(model, folder / "base")
    for seed, place in ((1, "a/step-1"), (2, "a/step-2"), (3, "b/step-2")):
        saved(moved(model, seed), folder / "tuned" / place)
    return base, folder / "tuned"
