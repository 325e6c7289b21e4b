"""Trainings of small transformers on a text of bytes, by AdamW: their sizes, cases and steps."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from jaxtyping import Int
from torch import Tensor

from lib.checkpoints.models import Kind, small_model
from lib.checkpoints.texts import loss
from lib.files.files import InputError
from lib.files.params import Interval, Name, Positive, Seeds, Steps, read_cases

Size = Annotated[int, Interval("[1, 65536]")]
WARMUP_STEPS = 20
FINAL_RATE = 0.1  # of the learning rate, at the end
BETA_2 = 0.99  # of AdamW: of a training this short, more would remember its start
OF_MODEL = ("d_model", "n_layers", "n_heads", "n_kv_heads", "d_mlp", "init_scale", "seq_len")


@dataclass(frozen=True)
class Training:
    """How long a model is trained and how fast, and the steps that are kept besides the last."""

    name: Name
    n_steps: Steps
    learning_rate: Positive
    snapshot_steps: tuple[Annotated[int, Interval("[0, 1e9]")], ...]

    def __post_init__(self) -> None:
        if any(step >= self.n_steps for step in self.snapshot_steps):
            wanted = f"wanted steps below n_steps = {self.n_steps}"
            raise ValueError(f"snapshot_steps: {wanted}, got {self.snapshot_steps}")


@dataclass(frozen=True, kw_only=True)
class Sizes(Seeds):
    """The sizes of a model and of its batches, and the seeds of its fine-tunes."""

    d_model: Size
    n_layers: Size
    n_heads: Size
    n_kv_heads: Size
    d_mlp: Size
    init_scale: Positive
    seq_len: Size
    batch_size: Size

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads or self.n_heads % self.n_kv_heads:
            wanted = "n_heads: wanted a divisor of d_model and a multiple of n_kv_heads"
            got = f"got {self.n_heads} for {self.d_model} and {self.n_kv_heads}"
            raise ValueError(f"{wanted}, {got}")


def read_trainings(file: Path) -> tuple[Training, dict[str, Training]]:
    """The training of the base, and those that tune it, by name.

    Raises `InputError` where the table lacks one of the two.
    """
    cases = {one.name: one for one in read_cases(file, Training)}
    if "base" not in cases or len(cases) < 2:
        wanted = "wanted a case named base and one or more that are tuned"
        raise InputError(f"{file}: {wanted}, got {list(cases)}")
    return cases.pop("base"), cases


def new_model(sizes: Sizes, kind: Kind) -> torch.nn.Module:
    """A model of a kind before any training, drawn from the first seed."""
    of_model = {name: getattr(sizes, name) for name in OF_MODEL}
    return small_model(kind, **of_model, seed=sizes.first_seed)


def descent(
    model: torch.nn.Module,
    text: Path,
    sizes: Sizes,
    n_steps: int,
    learning_rate: float,
    source: torch.Generator,
) -> Iterator[int]:
    """Train what asks for a gradient, without weight decay; yields how many steps are done.

    The rate rises over `WARMUP_STEPS`, times what falls on a line from 1 to `FINAL_RATE`.
    """
    tokens = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, betas=(0.9, BETA_2), weight_decay=0.0)
    model.train()
    for step in range(n_steps):
        yield step
        rate = learning_rate * min(1.0, (step + 1) / WARMUP_STEPS)
        optimiser.param_groups[0]["lr"] = rate * (1 - step / n_steps * (1 - FINAL_RATE))
        optimiser.zero_grad()
        loss(model, {"input_ids": drawn_windows(tokens, sizes, source)}).backward()
        optimiser.step()
    yield n_steps


def drawn_windows(
    tokens: Int[Tensor, " token"], sizes: Sizes, source: torch.Generator
) -> Int[Tensor, "sample position"]:
    """A batch of windows of the text that begin anywhere."""
    begin = torch.randint(len(tokens) - sizes.seq_len, (sizes.batch_size,), generator=source)
    return tokens[begin[:, None] + torch.arange(sizes.seq_len)]


def step_name(step: int) -> str:
    """The name of the folder of a snapshot."""
    return f"step-{step:05d}"
