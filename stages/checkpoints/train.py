"""Train a small transformer on a text and on the same in random order, then tune it to another,
largely and gently.

All is written as transformers writes it: `base`, `tuned/NAME-SEED/step-N`,
`pretrained/{language,permuted}/step-N`.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_args

import torch
from torch import Tensor

from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.models import Kind, loss, open_model, save_model, small_model
from lib.files.files import InputError, clear
from lib.files.inputs import write_sums
from lib.files.memory import COPIES, check_disk
from lib.files.params import Interval, Name, Positive, Seeds, Steps, read_cases, read_params
from lib.training.devices import generator
from lib.work.cells import Course, spread_cells
from lib.work.command import OutFolder, run
from lib.work.progress import advance

Size = Annotated[int, Interval("[1, 65536]")]
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
            raise ValueError(
                f"snapshot_steps: wanted steps below n_steps = {self.n_steps}, got "
                f"{self.snapshot_steps}"
            )


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

    @property
    def memory(self) -> int:
        """Bytes: weights, slopes and moments of AdamW, a copy that is saved, and what a batch
        leaves for its slopes.
        """
        d, tokens = self.d_model, self.batch_size * self.seq_len
        of_layer = 12 * d + 4 * self.d_mlp + 3 * self.n_heads * self.seq_len
        return 4 * (6 * self.n_weights + tokens * (self.n_layers * of_layer + 4 * 256))

    @property
    def n_weights(self) -> int:
        """At most, of either kind."""
        d, d_mlp = self.d_model, self.d_mlp
        return (256 * 2 + self.seq_len + 2) * d + self.n_layers * (
            4 * d * d + 3 * d * d_mlp + 9 * d + d_mlp
        )

    def written(self, cases: Mapping[str, Training]) -> int:
        """Bytes: the snapshots of all trainings, each with its header and config, and the base once
        more.
        """
        of_base = len(NULLS) * (1 + len(cases["base"].snapshot_steps)) + 1
        tuned = [1 + len(case.snapshot_steps) for name, case in cases.items() if name != "base"]
        return (of_base + self.n_seeds * sum(tuned)) * (
            4 * self.n_weights + 2000 * self.n_layers + 5000
        )

    def __post_init__(self) -> None:
        if self.d_model % self.n_heads or self.n_heads % self.n_kv_heads:
            wanted = "n_heads: wanted a divisor of d_model and a multiple of n_kv_heads"
            raise ValueError(
                f"{wanted}, got {self.n_heads} for {self.d_model} and {self.n_kv_heads}"
            )


def main(section: str, trainings: Path, texts: Path, models: list[OutFolder]) -> None:
    params = read_params(section, Train)
    cases = {one.name: one for one in read_cases(trainings, Training)}
    if "base" not in cases or len(cases) < 2:
        raise InputError(
            f"{trainings}: wanted a case named base and one or more that are tuned, got "
            f"{list(cases)}"
        )
    for folder in models:
        if folder.name not in get_args(Kind):
            raise InputError(
                f"{folder}: wanted a folder named {' or '.join(get_args(Kind))}, got {folder.name}"
            )
    check_disk(models[0], COPIES * len(models) * params.written(cases), section)
    for folder in models:
        for part, depth in (("base", ""), ("tuned", "*/*/"), ("pretrained", "*/*/")):
            clear(
                folder / part,
                *(depth + name for name in ("config.json", "model.safetensors", "SHA256SUMS")),
            )
    scratch = cases.pop("base")
    first = {
        folder / "pretrained" / name: (
            scratch,
            folder.name,
            texts / f"{name}.txt",
            None,
            "base",
            name,
        )
        for folder in models
        for name in NULLS
    }
    compute(params, first, "bases and their nulls")
    for folder in models:
        shutil.copytree(
            folder / "pretrained" / "language" / step_name(scratch.n_steps), folder / "base"
        )
    then = {
        folder / "tuned" / f"{name}-{seed}": (
            one,
            folder.name,
            texts / "tuned.txt",
            folder / "base",
            name,
            seed,
        )
        for folder in models
        for name, one in cases.items()
        for seed in params.seeds
    }
    compute(params, then, "tuned")


def compute(params: Train, trainings: Mapping[Path, tuple], label: str) -> None:
    """Train, and write the snapshots of each training into its folder, through a model of their
    kind.

    Those models are made before workers begin: so they need not load the library, each some
    seconds, themselves.
    """
    kinds = [kind for _, kind, *_ in trainings.values()]
    models = {kind: fresh(params, kind) for kind in kinds}
    jobs = [(train, replace(params, n_seeds=1), *arguments) for arguments in trainings.values()]
    courses: list[Course] = spread_cells(
        {"": jobs}, label=label, unit="step", size=lambda _, one, *rest: one.n_steps
    )[""]
    for folder, kind, course in zip(trainings, kinds, courses, strict=True):
        for weights, [row] in course.states:
            models[kind].load_state_dict(weights)
            save_model(models[kind], folder / step_name(row["step"]))
            write_sums(folder / step_name(row["step"]))


def train(
    params: Train,
    training: Training,
    kind: Any,
    text: Path,
    start: Path | None,
    *purpose: str | int,
) -> Course:
    """One training by AdamW without weight decay; the rate rises, then falls on a line. Its
    snapshots.
    """
    model, states = begun(params, kind, start), []
    source = generator(params.first_seed, "batches", *purpose)
    for step in descent(model, text, params, training.n_steps, training.learning_rate, source):
        if step in (*training.snapshot_steps, training.n_steps):
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
    """Train what of the model asks for a gradient; yields the number of steps that are done, from 0
    to all of them.
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
