"""Train a vision transformer for every variant and seed, and write their snapshots.

A variant has an init scale, an optimiser and labels, which may be permuted.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor

from lib.files.files import InputError
from lib.files.inputs import read_as
from lib.files.params import Count, Interval, Positive, Seeds, read_params
from lib.files.runs import Layout, clear_runs, write_run
from lib.training.attention import PRODUCTS
from lib.training.devices import Device, generator, kind_of, use_device
from lib.training.sgd import State, saved_steps, sgd
from lib.training.stacked import Losses, apart, groups, joined, together
from lib.vision.augmentation import Augmentation, RandAugment
from lib.vision.budget import check_budget
from lib.vision.datasets import Dataset, dataset_file, read_dataset
from lib.vision.images import Batches, standardise
from lib.vision.parts import Block, check_parts, in_parts
from lib.vision.rounded import rounded_loss
from lib.vision.variants import InitScale, Variant, chosen_variants
from lib.vision.vit import (
    MATRICES,
    Precision,
    ViT,
    Weights,
    score_batches,
    training_cost,
    training_loss,
    with_qk_norm,
)
from lib.work.cells import Cell, Checkpoints, key_of, newest, stacked, unfinished
from lib.work.command import OutFolder, run
from lib.work.compute import n_parallel, spread
from lib.work.live import Curves
from lib.work.progress import advance
from lib.work.ranks import is_first, join, launch, leave, n_ranks, of_first, own_device, rank


@dataclass(frozen=True)
class Train(Seeds):
    init_scales: tuple[InitScale, ...]
    device: Device
    precision: Precision
    compile: bool
    max_hours: Positive
    model: ViT
    augmentation: Literal["none", "crop_flip", "resized_crop_flip"]
    batch_size: Annotated[int, Interval("[1, 65536]")]
    n_steps: Annotated[int, Interval("[1, 1e8]")]
    warmup_steps: Annotated[int, Interval("[0, 1e8]")]
    learning_rate: Positive
    snapshot_every: Count
    threads: Annotated[int, Interval("[1, 64]")] = 1
    cells_together: Count = 1  # so many seeds and variants are trained as one stacked model
    # A batch is computed in so many parts, by as many processes as the environment says.
    parts: Annotated[int, Interval("[1, 65536]")] = 1
    deterministic: bool = False
    controls: tuple[str, ...] = ()  # names in the table of cases
    randaugment: RandAugment | None = None
    n_cycles: Count = 1  # in which the learning rate falls, each a half cosine
    # Written out, it is computed in bfloat16 on a CPU, weights rounded once a step.
    gradient: Literal["autograd", "written out"] = "autograd"

    def __post_init__(self) -> None:
        if not self.init_scales and not self.controls:
            raise ValueError("init_scales, controls: wanted at least one of them, got none")
        if self.warmup_steps > self.n_steps:
            raise ValueError(f"warmup_steps: wanted at most n_steps, got {self.warmup_steps}")
        check_parts(self.parts, self.batch_size)
        if self.parts > 1 and self.cells_together > 1:
            raise ValueError(f"cells_together: wanted 1 beside parts, got {self.cells_together}")
        if self.gradient == "written out":
            self.check_written_out()

    def check_written_out(self) -> None:
        """Raise `ValueError` where the gradient that is written out is not of what is trained."""
        wanted = {"device": "cpu", "precision": "bfloat16", "compile": False, "cells_together": 1}
        for name, value in wanted.items():
            got = getattr(self, name)
            if got != value:
                raise ValueError(f"{name}: wanted {value} beside gradient: written out, got {got}")

    @property
    def steps(self) -> list[int]:
        """The steps whose snapshots are saved."""
        return saved_steps(self.n_steps, self.snapshot_every)

    @property
    def changes(self) -> Augmentation:
        """How training images are changed."""
        return Augmentation(self.augmentation, self.randaugment)


class Training(NamedTuple):
    """A variant, from one seed."""

    variant: Variant
    seed: int


def main(section: str, controls: Path, dataset: Path, runs: OutFolder) -> None:
    params = read_params(section, Train)
    if launch(params.parts, params.device):
        return
    variants = chosen_variants(controls, params.controls, params.init_scales)
    file = dataset_file(dataset)
    images = read_as("a data set of images", read_dataset, file)
    trainings = [Training(variant, seed) for variant in variants for seed in params.seeds]
    join(params.device)
    if is_first():
        check_fit(params, images)
        say_cost(params, images, len(trainings), dataset.parent)
        clear_runs(runs)
    key = key_of(train_together, file, device=params.device)
    rules = groups(trainings, partial(rule_of, params), params.cells_together)
    done = spread(
        train_together,
        [(section, file, params, alike, key) for alike in rules],
        label=section,
        total=len(trainings) * params.n_steps,
        n_threads=params.threads,
        device=params.device,
        n_processes=1 if n_ranks() > 1 else None,
    )
    list(done)
    if is_first():
        for variant in variants:
            publish(runs, variant, params, key)
    leave()


def check_fit(params: Train, images: Dataset) -> None:
    """Raise `InputError` where the params do not fit the images."""
    n_images = images.n_train
    n_channels = images.shape[0]
    if params.batch_size > n_images:
        raise InputError(f"batch_size: wanted at most {n_images} images, got {params.batch_size}")
    if params.randaugment is not None and n_channels != 3:
        wanted = "wanted images of 3 channels (or no randaugment)"
        raise InputError(f"randaugment: {wanted}, got {n_channels}")
    if params.augmentation not in images.crops:
        wanted = f"wanted one of {list(images.crops)} for images that are kept so"
        raise InputError(f"augmentation: {wanted}, got {params.augmentation}")


def say_cost(params: Train, images: Dataset, n_trainings: int, folder: Path) -> None:
    """Say what all trainings cost; raises `InputError` where that is too much."""
    flops, n_bytes = training_cost(params.model, images.shape, images.n_classes)
    here = n_parallel(kind_of(params.device), params.threads)
    check_budget(
        f"{n_trainings} trainings of {params.n_steps} steps",
        flops * params.batch_size * params.n_steps * n_trainings,
        n_bytes * n_trainings * len(params.steps),
        use_device(own_device(params.device)),
        params.precision,
        n_ranks() if n_ranks() > 1 else here,
        max_hours=params.max_hours,
        folder=folder,
    )


def rule_of(params: Train, training: Training) -> str:
    """How a training updates which weights: those that do so alike can be trained as one."""
    variant = training.variant
    return f"{variant.rule(params.learning_rate)}, {variant.attention}"


def scratch_of(params: Train, training: Training, key: dict[str, Any]) -> Cell:
    """The scratch of one training, keyed by what it depends on and by nothing else."""
    others = ("n_seeds", "first_seed", "init_scales", "controls", "max_hours")
    shared = {name: value for name, value in asdict(params).items() if name not in others}
    own = {"variant": asdict(training.variant), "seed": training.seed}
    return Cell("vision", {**key, **shared, **own})


def train_together(
    section: str, dataset: Path, params: Train, trainings: list[Training], key: dict[str, Any]
) -> None:
    """Train several as one, going on where an interrupted call left off."""
    places = {
        one: (
            scratch_of(params, one, key),
            Curves(f"{section}/{one.variant.run}/seed={one.seed}"),
        )
        for one in trainings
    }
    with unfinished(places, params.steps) if is_first() else nullcontext({}) as found:
        wanted = {one: found.get(one) for one in of_first(lambda: list(found))}
        advance(params.n_steps * (len(trainings) - len(wanted)))
        if wanted:
            train(read_dataset(dataset), params, wanted)


def train(images: Dataset, params: Train, wanted: dict[Training, Checkpoints | None]) -> None:
    """Train from the newest checkpoint to the last step, several as one.

    A GPU is waited for only to save something. Among several ranks only the first is given
    what is kept: it alone reads, scores and saves.
    """
    device = use_device(own_device(params.device), params.deterministic)
    trainings = list(wanted)
    kept = [checkpoints for checkpoints in wanted.values() if checkpoints is not None]
    n = len(trainings)
    saved = set(params.steps if kept else ())
    fused = n == 1 and not params.deterministic
    statistics = [s.to(device) for s in images.statistics()]
    fed = images.on(device)

    def loss(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        x = standardise(x, *statistics)
        if params.gradient == "written out":
            return rounded_loss(weights, x, y)
        return training_loss(weights, x, y, params.precision, fused=fused)

    def wrapped(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
        compiled = torch.compile(loss) if params.compile else loss
        return in_parts(compiled, params.parts, dist.group.WORLD)

    losses = Losses(loss, n, device, wrapped)

    def save(state: State) -> None:
        means = apart({"train_loss": losses.means()}, n)
        for one, weights, mean in zip(kept, apart(state.weights, n), means, strict=True):
            test = ((standardise(x, *statistics), y) for x, y in fed.tests())
            scores = score_batches(weights, test, params.precision, fused=fused)
            one.save(state.step, weights, mean | scores)

    resumed = of_first(lambda: newest(kept))
    if resumed is None:
        first = [first_weights(params, images, one) for one in trainings]
        start = State(0, {name: w.to(device) for name, w in together(first).items()})
        if kept:
            save(start)
    else:
        step, parts = resumed
        tensors = together(parts)
        start = State.from_tensors(step, tensors, device)
        losses.tally = tensors["tally"].to(device)
    advance(start.step * n)
    feeds = joined([feed(fed, params, one, start.step) for one in trainings])
    steps = sgd(losses, start, feeds, params.n_steps, **schedule_of(params, trainings[0]))
    for state in steps:
        if state.step in saved:
            save(state)
        if kept and kept[0].due():
            parts = apart(state.tensors() | {"tally": losses.tally}, n)
            for one, tensors in zip(kept, parts, strict=True):
                one.checkpoint(state.step, tensors)
        advance(n)


def schedule_of(params: Train, training: Training) -> dict[str, Any]:
    """By which rule, and at which rates, a training updates its weights."""
    rule = training.variant.rule(params.learning_rate)
    return {"warmup_steps": params.warmup_steps, "n_cycles": params.n_cycles, **rule}


def first_weights(params: Train, images: Dataset, training: Training) -> Weights:
    """The weights that a training begins with."""
    variant = training.variant
    scale = cast(float, variant.init_scale)
    draw = generator(training.seed, "weights")
    weights = params.model.initial_weights(
        images.shape, images.n_classes, scale, variant.scaled, draw
    )
    return with_qk_norm(weights) if variant.attention == "qk_norm" else weights


def feed(images: Dataset, params: Train, training: Training, start: int) -> Batches:
    """The batches of a training from a step on; all random numbers are drawn on the CPU."""
    draw = partial(generator, training.seed)
    permute = training.variant.labels == "permuted"
    block = Block(params.parts, rank(), n_ranks())
    return images.feed(draw, params.batch_size, params.changes, permute, start, block)


def publish(runs: Path, variant: Variant, params: Train, key: dict[str, Any]) -> None:
    """Stack the seeds' snapshots of one variant into one run."""
    cell = {"variant": variant.run, "init_scale": variant.init_scale, "control": variant.control}
    matrices = {name: ["seed", *axes] for name, axes in MATRICES.items()}
    layout = Layout("vision", matrices, PRODUCTS, cell=cell, seeds=list(params.seeds))
    trainings = {seed: scratch_of(params, Training(variant, seed), key) for seed in params.seeds}
    with write_run(runs, variant.run, layout) as run:
        for step in params.steps:
            run.add(*stacked(trainings, step))


if __name__ == "__main__":
    run(main)
