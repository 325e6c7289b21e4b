"""Train small transformers on a text and on its null, then tune them to another text.

The null is the text in random order; the fine-tunes are large and gentle ones. All is written as
transformers writes it: `base`, `tuned/NAME-SEED/step-N`,
`pretrained/{language,permuted}/step-N`.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import torch
from torch import Tensor

from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.models import Kind, open_model, save_model, small_model
from lib.checkpoints.texts import loss
from lib.files.files import InputError, clear
from lib.files.inputs import write_sums
from lib.files.params import Interval, Name, Positive, Seeds, Steps, read_cases, read_params
from lib.training.devices import generator
from lib.work.cells import Course, spread_cells
from lib.work.command import OutFolder, run
from lib.work.progress import advance

Size = Annotated[int, Interval("[1, 65536]")]
FILES = ("config.json", "model.safetensors", "SHA256SUMS")
NULLS = ("language", "permuted")  # the text that the base is trained on, and its null
WARMUP_STEPS = 20
FINAL_RATE = 0.1  # of the learning rate, at the end
BETA_2 = 0.99  # of AdamW: of a training this short, more would remember its start


@dataclass(frozen=True)
class Training:
    name: Name
    n_steps: Steps
    learning_rate: Positive
    snapshot_steps: tuple[Annotated[int, Interval("[0, 1e9]")], ...]  # besides the last

    def __post_init__(self) -> None:
        if any(step >= self.n_steps for step in self.snapshot_steps):
            wanted = f"wanted steps below n_steps = {self.n_steps}"
            raise ValueError(f"snapshot_steps: {wanted}, got {self.snapshot_steps}")


@dataclass(frozen=True, kw_only=True)
class Train(Seeds):
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


class Job(NamedTuple):
    """One training: how, of which kind of model, on which text, and from which checkpoint."""

    training: Training
    kind: Any
    text: Path
    start: Path | None
    purpose: tuple[str | int, ...]  # of its random numbers


def main(section: str, trainings: Path, texts: Path, models: list[OutFolder]) -> None:
    params = read_params(section, Train)
    cases = {one.name: one for one in read_cases(trainings, Training)}
    if "base" not in cases or len(cases) < 2:
        wanted = "wanted a case named base and one or more that are tuned"
        raise InputError(f"{trainings}: {wanted}, got {list(cases)}")
    for folder in models:
        if folder.name not in get_args(Kind):
            wanted = f"wanted a folder named {' or '.join(get_args(Kind))}"
            raise InputError(f"{folder}: {wanted}, got {folder.name}")
    for folder in models:
        for part, depth in (("base", ""), ("tuned", "*/*/"), ("pretrained", "*/*/")):
            clear(folder / part, *(depth + name for name in FILES))
    base = cases.pop("base")
    first = {
        folder / "pretrained" / name: Job(
            base, folder.name, texts / f"{name}.txt", None, ("base", name)
        )
        for folder in models
        for name in NULLS
    }
    compute(params, first, "bases and their nulls")
    for folder in models:
        last = folder / "pretrained" / "language" / step_name(base.n_steps)
        shutil.copytree(last, folder / "base")
    then = {
        folder / "tuned" / f"{name}-{seed}": Job(
            one, folder.name, texts / "tuned.txt", folder / "base", (name, seed)
        )
        for folder in models
        for name, one in cases.items()
        for seed in params.seeds
    }
    compute(params, then, "tuned")


def compute(params: Train, trainings: Mapping[Path, Job], label: str) -> None:
    """Train, and write the snapshots of each training into its folder.

    They are written through a model of their kind. Those models are made before workers begin: so
    the workers need not load the library, each some seconds, themselves.
    """
    models = {one.kind: fresh(params, one.kind) for one in trainings.values()}
    jobs = [(train, replace(params, n_seeds=1), *one) for one in trainings.values()]
    courses: list[Course] = spread_cells(
        {"": jobs}, label=label, unit="step", size=lambda _, one, *rest: one.n_steps
    )[""]
    for (folder, one), course in zip(trainings.items(), courses, strict=True):
        model = models[one.kind]
        for weights, [row] in course.states:
            at = folder / step_name(row["step"])
            model.load_state_dict(weights)
            save_model(model, at)
            write_sums(at)


def train(
    params: Train,
    training: Training,
    kind: Any,
    text: Path,
    start: Path | None,
    purpose: tuple[str | int, ...],
) -> Course:
    """The snapshots of one training by AdamW; the rate rises, then falls on a line."""
    model = begun(params, kind, start)
    source = generator(params.first_seed, "batches", *purpose)
    saved = (*training.snapshot_steps, training.n_steps)
    states = []
    for step in descent(model, text, params, training.n_steps, training.learning_rate, source):
        if step in saved:
            weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            states.append((weights, [{"step": step}]))
        advance(step > 0)
    return Course({}, states)


def begun(params: Train, kind: Any, start: Path | None) -> torch.nn.Module:
    """The model before its first step: that of a checkpoint, or a new one."""
    return open_model(start, open_checkpoint(start).config) if start else fresh(params, kind)


def descent(
    model: torch.nn.Module,
    text: Path,
    params: Train,
    n_steps: int,
    learning_rate: float,
    source: torch.Generator,
) -> Iterator[int]:
    """Train what asks for a gradient, without weight decay; yields how many steps are done."""
    tokens = torch.frombuffer(bytearray(text.read_bytes()), dtype=torch.uint8).long()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, betas=(0.9, BETA_2), weight_decay=0.0)
    model.train()
    for step in range(n_steps):
        yield step
        rate = learning_rate * min(1.0, (step + 1) / WARMUP_STEPS)
        optimiser.param_groups[0]["lr"] = rate * (1 - step / n_steps * (1 - FINAL_RATE))
        optimiser.zero_grad()
        loss(model, {"input_ids": windows(tokens, params, source)}).backward()
        optimiser.step()
    yield n_steps


def fresh(params: Train, kind: Any) -> torch.nn.Module:
    names = ("d_model", "n_layers", "n_heads", "n_kv_heads", "d_mlp", "init_scale", "seq_len")
    return small_model(
        kind, **{name: getattr(params, name) for name in names}, seed=params.first_seed
    )


def windows(tokens: Tensor, params: Train, source: torch.Generator) -> Tensor:
    """Windows of the text that begin anywhere."""
    begin = torch.randint(len(tokens) - params.seq_len, (params.batch_size,), generator=source)
    return tokens[begin[:, None] + torch.arange(params.seq_len)]


def step_name(step: int) -> str:
    return f"step-{step:05d}"


if __name__ == "__main__":
    run(main)
