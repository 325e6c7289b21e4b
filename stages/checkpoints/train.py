"""Train a small transformer on a text and on the same in random order, then tune it to another, largely and gently.

All is written as transformers writes it: `base`, `tuned/NAME-SEED/step-N`, `pretrained/{language,permuted}/step-N`.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from lib.io.command import run
from lib.io.compute import advance, available_cores, generator, spread
from lib.io.files import InputError, clear
from lib.io.params import Count, Fraction, Interval, Positive, Seeds, read_params
from lib.io.pretrained import open_checkpoint
from lib.models.transformers_models import loss, open_model, save_model, small_model

Size = Annotated[int, Interval("[1, 65536]")]


@dataclass(frozen=True)
class Model:
    d_model: Size
    n_layers: Size
    n_heads: Size
    n_kv_heads: Size
    d_mlp: Size
    init_scale: Positive

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads or self.n_heads % self.n_kv_heads:
            wanted = "n_heads: wanted a divisor of d_model and a multiple of n_kv_heads"
            raise ValueError(f"{wanted}, got {self.n_heads} for {self.d_model} and {self.n_kv_heads}")


@dataclass(frozen=True)
class Training:
    n_steps: Count
    learning_rate: Positive
    snapshot_steps: tuple[Annotated[int, Interval("[0, 1e9]")], ...]  # besides the last

    def __post_init__(self) -> None:
        if any(step >= self.n_steps for step in self.snapshot_steps):
            raise ValueError(f"snapshot_steps: wanted steps below n_steps = {self.n_steps}, got {self.snapshot_steps}")


@dataclass(frozen=True, kw_only=True)
class Train(Seeds):
    model: Model
    seq_len: Size
    batch_size: Size
    warmup_steps: Count
    final_rate: Fraction
    beta_2: Annotated[float, Interval("[0, 1)")]
    base: Training
    tuned: dict[str, Training]


def main(section: str, kind: str, texts: Path, base: Path, tuned: Path, pretrained: Path) -> None:
    params = read_params(section, Train)
    if kind not in ("llama", "gpt2"):
        raise InputError(f"kind: wanted llama or gpt2, got {kind}")
    for folder, depth in ((base, ""), (tuned, "*/*/"), (pretrained, "*/*/")):
        clear(folder, *(depth + name for name in ("config.json", "model.safetensors")))
    first: list[tuple] = [
        (params, params.base, kind, texts / f"{name}.txt", None, pretrained / name, ("base", name))
        for name in ("language", "permuted")
    ]
    compute(first, f"{kind}: base and its null")
    shutil.copytree(pretrained / "language" / step_name(params.base.n_steps), base)
    then = [
        (params, training, kind, texts / "tuned.txt", base, tuned / f"{name}-{seed}", (name, seed))
        for name, training in params.tuned.items()
        for seed in params.seeds
    ]
    compute(then, f"{kind}: tuned")


def compute(jobs: Sequence[tuple], label: str) -> None:
    total = sum(training.n_steps for _, training, *_ in jobs)
    for _ in spread(train, jobs, n_processes=available_cores(), label=label, total=total):
        pass


def train(
    params: Train, training: Training, kind: Any, text: Path, start: Path | None, folder: Path, purpose: tuple[Any, ...]
) -> None:
    """One training by AdamW without weight decay; the rate rises, then falls on a line."""
    model = open_model(start, open_checkpoint(start).config) if start else fresh(params, kind)
    tokens = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long()
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, params.beta_2), weight_decay=0.0)
    source = generator(params.first_seed, "batches", *purpose)
    model.train()
    for step in range(training.n_steps + 1):
        if step in (*training.snapshot_steps, training.n_steps):
            save_model(model, folder / step_name(step))
        if step == training.n_steps:
            break
        share = step / training.n_steps
        rate = training.learning_rate * min(1.0, (step + 1) / params.warmup_steps)
        optimiser.param_groups[0]["lr"] = rate * (1 - share * (1 - params.final_rate))
        optimiser.zero_grad()
        loss(model, {"input_ids": windows(tokens, params, source)}).backward()
        optimiser.step()
        advance()


def fresh(params: Train, kind: Any) -> torch.nn.Module:
    sizes = vars(params.model) | {"seq_len": params.seq_len}
    return small_model(kind, **sizes, seed=params.first_seed)


def windows(tokens: Tensor, params: Train, source: torch.Generator) -> Tensor:
    """Windows of the text that begin anywhere."""
    begin = torch.randint(len(tokens) - params.seq_len, (params.batch_size,), generator=source)
    return tokens[begin[:, None] + torch.arange(params.seq_len)]


def step_name(step: int) -> str:
    return f"step-{step:05d}"


if __name__ == "__main__":
    run(main)
