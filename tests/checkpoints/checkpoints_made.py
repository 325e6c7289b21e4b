"""Checkpoints and params for tests of the stages of `checkpoints`: tiny models, tuned by noise or
by a few steps; and what the stages make of them.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml

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
SIZES = {
    "d_model": 16,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "d_mlp": 24,
    "init_scale": 0.1,
    "seq_len": 16,
}
WORDS = b"the cat sat on the mat. " * 30
TEXT = WORDS[:512]
# Its words in another order: no two windows are alike.
VARIED = b" ".join(np.random.default_rng(0).permutation(WORDS.split()).tolist())[:512]
FEW = {"n_shuffles": 0, "pruning_rates": [0.0], "budgets": [3]}  # losses
SECTIONS = {"s": SPECTRA, "p": PLAN, "m": MEASURE}


def taught(kind: str, folder: Path, n_steps: int = 12) -> tuple[Path, Path]:
    """A base, and what a few steps of gradient descent on TEXT made of all its weights: folders."""
    model = made(kind)
    base = saved(model, folder / "base")
    tokens = windows(TEXT)
    fit(model, n_steps, input_ids=tokens, labels=tokens)
    return base, saved(model, folder / "tuned")


def fit(model, n_steps: int, rate: float = 3e-3, **samples: torch.Tensor) -> None:
    """Train what asks for a gradient on samples."""
    optimiser = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=rate)
    for _ in range(n_steps):
        optimiser.zero_grad()
        model(**samples).loss.backward()
        optimiser.step()


def descended(model, text: bytes, n_steps: int, rate: float, source: torch.Generator):
    """The model, trained by AdamW on windows that begin anywhere in a text, as stages train."""
    tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    moving = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(moving, betas=(0.9, 0.99), weight_decay=0.0)
    for step in range(n_steps):
        begin = torch.randint(len(tokens) - 16, (4,), generator=source)
        rows = torch.stack([tokens[i : i + 16] for i in begin.tolist()])
        warmed = rate * min(1, (step + 1) / 20)
        optimiser.param_groups[0]["lr"] = warmed * (1 - step / n_steps * 0.9)
        optimiser.zero_grad()
        cross_entropy(model(input_ids=rows).logits, rows).backward()
        optimiser.step()
    return model


def noisy(kind: str, folder: Path) -> tuple[Path, Path]:
    """A base, and three snapshots of two runs, each farther from it."""
    model = made(kind)
    base = saved(model, folder / "base")
    for seed, place in ((1, "a/step-1"), (2, "a/step-2"), (3, "b/step-2")):
        saved(moved(model, seed), folder / "tuned" / place)
    return base, folder / "tuned"


@dataclass
class Planned:
    """A pair, and what the stages spectra and plan wrote of it into a folder."""

    base: Path
    tuned: Path
    folder: Path

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(self.folder / f"plans/{name}.parquet")

    def rows(self, **where) -> list[dict]:
        """The plans that have these values."""
        plans = self.table("plans")
        for name, value in where.items():
            plans = plans[plans[name] == value]
        return plans.to_dict("records")

    @property
    def losses(self) -> dict:
        [row] = self.table("losses").to_dict("records")
        return row


def planned(
    base: Path,
    tuned: Path,
    text: Path | str,
    *,
    saved: str = "no",
    kept: int = 0,
    thorough: str = "yes",
    **changes,
) -> Planned:
    """Run both stages in the working folder."""
    from stages.checkpoints import plan, spectra

    sections = {
        key: values | {name: of for name, of in changes.items() if name in values}
        for key, values in SECTIONS.items()
    }
    Path("params.yaml").write_text(yaml.safe_dump(sections))
    found = Planned(base, tuned, Path.cwd())
    table = found.folder / "spectra.parquet"
    factors = found.folder / "factors"
    pair = {"base": base, "spectra": table}
    spectra.main(section="s", **pair, snapshots=tuned, factors=str(factors), kept=kept)
    plan.main(
        section="p",
        measure="m",
        **pair,
        tuned=tuned,
        text=str(text),
        factors=factors,
        plans=found.folder / "plans",
        modules_to_save=saved,
        thorough=thorough,
    )
    return found


def windows(text: bytes = VARIED) -> torch.Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8).long().view(-1, 16)


def cross_entropy(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The loss of the next token."""
    wanted = tokens[:, 1:].flatten()
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), wanted)


def loss_of(model, rows=slice(8, 16), weights=None) -> float:
    """The loss of a model on windows, of a checkpoint in a folder or of a live one, with some
    weights in place of its own.
    """
    if isinstance(model, Path):
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(model)
    tokens = windows()[rows]
    with torch.no_grad():
        changed = {name: W.float() for name, W in (weights or {}).items()}
        out = torch.func.functional_call(model, changed, kwargs={"input_ids": tokens})
        return float(cross_entropy(out.logits, tokens))


def adapted(base: Path, adapter: Path, kind=None):
    """The base, of a kind of the library, with an adapter, as peft opens it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        model = (kind or AutoModelForCausalLM).from_pretrained(base)
        return PeftModel.from_pretrained(model, adapter)
