"""Checkpoints and params for tests of the stages of `checkpoints`: tiny models, tuned by noise or
by a few steps.
"""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from tests.checkpoints.transformers_made import made, moved, saved

SPECTRA = {"method": "auto", "rank": 8, "rotary_offsets": [0, 3]}
PLAN = {
    "n_shuffles": 2,
    "n_points": 2,
    "max_loss_share": 0.5,
    "pruning_rates": [0.0, 0.5],
    "device": "cpu",
}
MEASURE = {
    "budgets": [1, 3],
    "n_batches": 2,
    "n_measured_batches": 2,
    "n_choosing_batches": 2,
    "batch_size": 4,
    "seq_len": 16,
}
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


RULES = ("uniform", "energy", "water-filling", "attributed")
RUNS = ("large-0", "large-1", "gentle-0", "gentle-1")


def number(*key):
    """A number in (0, 1) that only its key determines."""
    return float(np.random.default_rng([sum(map(ord, str(part))) for part in key]).random())


def written(folder: Path, model: str) -> Path:
    """All that the stages of one model give to evaluate, of made-up numbers."""
    at = folder / model
    (at / "plans").mkdir(parents=True)
    plans, modules, losses, budgets, pruning, rounding, spectra = ([] for _ in range(7))
    for run in RUNS:
        for budget in (1, 2):
            for rule in RULES:
                for shuffle in range(3 if rule == "attributed" else 1):
                    share = number(model, run, budget, rule, shuffle)
                    row = {
                        "budget": budget,
                        "rule": rule,
                        "shuffle": shuffle,
                        "parameters": 100 * budget,
                    }
                    lost = {"loss": 1 + share, "share_lost": share, "loss_on_base": 2 + share}
                    plans.append(row | lost | {"ranks": [1, 0], "run": run})
        sizes = {"rows": 8, "cols": 4, "norm": 1.0, "base_norm": 2.0, "limit": 3, "run": run}
        sizes |= {"by_columns": False, "earned": 0.5}
        modules += [
            {"module": f"layers.{i}.up", "tensor": f"layers.{i}.up.weight", **sizes} for i in (0, 1)
        ]
        loss = {"loss_tuned": 0.9, "loss_without_linear": 2.2, "gain": 1.6, "drop": 1.3}
        losses.append(
            loss
            | {"attributed": 1.3 * (1 + 0.1 * number(model, run)), "loss_base": 2.5, "run": run}
        )
        budgets.append({"parameters": 10, "share_lost": 0.1, "least": True, "run": run})
        for what in ("weights, smallest first", "updates, smallest first", "updates, at random"):
            pruning += [
                {"what": what, "rate": rate, "loss": 1 + number(model, run, what, rate), "run": run}
                for rate in (0.3, 0.5)
            ]
        for step, size in ((1, 0.001), (9, 0.1)):
            for i in range(3):
                place = {"run": run, "step": step, "module": f"layers.{i}.up"}
                ranks = {
                    "rank_90": 5 + i,
                    "rank_90_stored": 9 + i + step,
                    "above_edge": 3,
                    "above_edge_stored": 3 + i,
                }
                noise = number(model, run, step, i)
                rounding.append(
                    {**place, "relative_update": size, **ranks, "noise_over_edge": noise}
                )
                sizes = {
                    "rows": 8,
                    "cols": 4,
                    "norm": 1.0,
                    "base_norm": 2.0,
                    "edge": 0.1,
                    "rank_above_edge": 2,
                }
                ranks = {"stable_rank": 1.0, "rank_90": int(9 * number(model, run, step, i, "r"))}
                kind = {"layer": i + 1, "head": 0, "offset": 0, "of": "update", "method": "full"}
                spectra.append({**place, **kind, **sizes, **ranks, "singular_values": [1.0]})
    for name, rows in (
        ("plans", plans),
        ("modules", modules),
        ("losses", losses),
        ("budgets", budgets),
        ("pruning", pruning),
    ):
        pd.DataFrame(rows).to_parquet(at / "plans" / f"{name}.parquet")
    for name, rows in (("rounding", rounding), ("spectra", spectra)):
        pd.DataFrame(rows).to_parquet(at / f"{name}.parquet")
    heads = []
    for text, step, head, product, offset, of in itertools.product(
        ("language", "permuted"),
        (0, 1, 8),
        (1, 2),
        ("W_KQ", "W_VO"),
        (0, 16),
        ("initial", "update"),
    ):
        place = {
            "run": text,
            "step": step,
            "layer": 1,
            "head": head,
            "module": product,
            "offset": offset,
            "of": of,
        }
        rank = 1 + number(model, text, step, head, product, offset, of)
        heads.append({**place, "norm": 1.0, "stable_rank": rank, "rank_90": 2})
    pd.DataFrame(heads).to_parquet(at / "pretrained.parquet")
    return at
