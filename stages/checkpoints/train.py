"""Train small transformers on a text and on its null, then tune them to another text.

The null is the text in random order; the fine-tunes are large and gentle ones. All is written as
transformers writes it: `base`, `tuned/NAME-SEED/step-N`,
`pretrained/{language,permuted}/step-N`.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, get_args

from lib.checkpoints.folders import open_checkpoint
from lib.checkpoints.models import Kind, open_model, save_model
from lib.checkpoints.trainings import Sizes, Training, descent, new_model, read_trainings, step_name
from lib.files.files import InputError, clear
from lib.files.inputs import write_sums
from lib.files.params import read_params
from lib.training.devices import generator
from lib.work.cells import Course, spread_cells
from lib.work.command import OutFolder, run
from lib.work.progress import advance

FILES = ("config.json", "model.safetensors", "SHA256SUMS")
NULLS = ("language", "permuted")  # the text that the base is trained on, and its null


class Job(NamedTuple):
    """One training: how, of which kind of model, on which text, and from which checkpoint."""

    training: Training
    kind: Any
    text: Path
    start: Path | None
    purpose: tuple[str | int, ...]  # of its random numbers


def main(section: str, trainings: Path, texts: Path, models: list[OutFolder]) -> None:
    sizes = read_params(section, Sizes)
    base, fine_tunes = read_trainings(trainings)
    for folder in models:
        if folder.name not in get_args(Kind):
            wanted = f"wanted a folder named {' or '.join(get_args(Kind))}"
            raise InputError(f"{folder}: {wanted}, got {folder.name}")
    for folder in models:
        for part, depth in (("base", ""), ("tuned", "*/*/"), ("pretrained", "*/*/")):
            clear(folder / part, *(depth + name for name in FILES))
    first = {
        folder / "pretrained" / name: Job(
            base, folder.name, texts / f"{name}.txt", None, ("base", name)
        )
        for folder in models
        for name in NULLS
    }
    write_snapshots(sizes, first, "bases and their nulls")
    for folder in models:
        last = folder / "pretrained" / "language" / step_name(base.n_steps)
        shutil.copytree(last, folder / "base")
    then = {
        folder / "tuned" / f"{name}-{seed}": Job(
            one, folder.name, texts / "tuned.txt", folder / "base", (name, seed)
        )
        for folder in models
        for name, one in fine_tunes.items()
        for seed in sizes.seeds
    }
    write_snapshots(sizes, then, "tuned")


def write_snapshots(sizes: Sizes, trainings: Mapping[Path, Job], label: str) -> None:
    """Train, and write the snapshots of each training into its folder.

    They are written through a model of their kind. Those models are made before workers begin: so
    the workers need not load the library, each some seconds, themselves.
    """
    models = {one.kind: new_model(sizes, one.kind) for one in trainings.values()}
    jobs = [(train, replace(sizes, n_seeds=1), *one) for one in trainings.values()]
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
    sizes: Sizes,
    training: Training,
    kind: Any,
    text: Path,
    start: Path | None,
    purpose: tuple[str | int, ...],
) -> Course:
    """The snapshots of one training, from a checkpoint or from a new model."""
    model = open_model(start, open_checkpoint(start).config) if start else new_model(sizes, kind)
    source = generator(sizes.first_seed, "batches", *purpose)
    saved = (*training.snapshot_steps, training.n_steps)
    states = []
    for step in descent(model, text, sizes, training.n_steps, training.learning_rate, source):
        if step in saved:
            weights = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
            states.append((weights, [{"step": step}]))
        advance(step > 0)
    return Course({}, states)


if __name__ == "__main__":
    run(main)
