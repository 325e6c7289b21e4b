"""Trainings of vision transformers: how they are done, what they cost, and what is kept of them."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor

from lib.files.files import InputError
from lib.files.params import Count, Interval, Positive
from lib.files.runs import Layout, write_run
from lib.training.attention import PRODUCTS
from lib.training.devices import Device, generator, kind_of, use_device
from lib.training.sgd import State, saved_steps, sgd
from lib.training.stacked import Losses, apart, joined, together
from lib.vision.augmentation import Augmentation, RandAugment
from lib.vision.budget import check_budget
from lib.vision.datasets import Dataset
from lib.vision.images import Batches, standardise
from lib.vision.parts import Block, check_parts, in_parts
from lib.vision.rounded import rounded_loss
from lib.vision.variants import Variant
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
from lib.work.cells import Cell, Checkpoints, newest, stacked
from lib.work.compute import n_parallel
from lib.work.progress import advance
from lib.work.ranks import n_ranks, of_first, own_device, rank


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a training is done, whatever its variant and seed: all that its result depends on.

    `cells_together` seeds and variants are trained as one stacked model. A batch is computed in
    so many `parts`, by as many processes as the environment says. The learning rate falls in
    `n_cycles`, each a half cosine. A `gradient` that is written out is computed in bfloat16 on a
    CPU, from weights that are rounded once a step.
    """

    device: Device
    precision: Precision
    compile: bool
    model: ViT
    augmentation: Literal["none", "crop_flip", "resized_crop_flip"]
    batch_size: Annotated[int, Interval("[1, 65536]")]
    n_steps: Annotated[int, Interval("[1, 1e8]")]
    warmup_steps: Annotated[int, Interval("[0, 1e8]")]
    learning_rate: Positive
    snapshot_every: Count
    threads: Annotated[int, Interval("[1, 64]")] = 1
    cells_together: Count = 1
    parts: Annotated[int, Interval("[1, 65536]")] = 1
    deterministic: bool = False
    randaugment: RandAugment | None = None
    n_cycles: Count = 1
    gradient: Literal["autograd", "written out"] = "autograd"

    def __post_init__(self) -> None:
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


def check_fit(recipe: Recipe, images: Dataset) -> None:
    """Raise `InputError` where the recipe does not fit the images."""
    n_images = images.n_train
    n_channels = images.shape[0]
    if recipe.batch_size > n_images:
        raise InputError(f"batch_size: wanted at most {n_images} images, got {recipe.batch_size}")
    if recipe.randaugment is not None and n_channels != 3:
        wanted = "wanted images of 3 channels (or no randaugment)"
        raise InputError(f"randaugment: {wanted}, got {n_channels}")
    if recipe.augmentation not in images.crops:
        wanted = f"wanted one of {list(images.crops)} for images that are kept so"
        raise InputError(f"augmentation: {wanted}, got {recipe.augmentation}")


def say_cost(
    recipe: Recipe, images: Dataset, n_trainings: int, max_hours: float, folder: Path
) -> None:
    """Say what all trainings cost; raises `InputError` where that is too much."""
    flops, n_bytes = training_cost(recipe.model, images.shape, images.n_classes)
    here = n_parallel(kind_of(recipe.device), recipe.threads)
    check_budget(
        f"{n_trainings} trainings of {recipe.n_steps} steps",
        flops * recipe.batch_size * recipe.n_steps * n_trainings,
        n_bytes * n_trainings * len(recipe.steps),
        use_device(own_device(recipe.device)),
        recipe.precision,
        n_ranks() if n_ranks() > 1 else here,
        max_hours=max_hours,
        folder=folder,
    )


def rule_of(recipe: Recipe, training: Training) -> str:
    """How a training updates its weights: trainings with one rule can be stacked."""
    variant = training.variant
    return f"{variant.rule(recipe.learning_rate)}, {variant.attention}"


def scratch_of(recipe: Recipe, training: Training, key: dict[str, Any]) -> Cell:
    """The scratch of one training, keyed by what it depends on and by nothing else."""
    names = {field.name for field in fields(Recipe)}
    shared = {name: value for name, value in asdict(recipe).items() if name in names}
    own = {"variant": asdict(training.variant), "seed": training.seed}
    return Cell("vision", {**key, **shared, **own})


def train(images: Dataset, recipe: Recipe, wanted: dict[Training, Checkpoints | None]) -> None:
    """Train from the newest checkpoint to the last step, several as one.

    A GPU is waited for only to save something. Among several ranks only the first is given
    what is kept: it alone reads, scores and saves.
    """
    device = use_device(own_device(recipe.device), recipe.deterministic)
    trainings = list(wanted)
    kept = [checkpoints for checkpoints in wanted.values() if checkpoints is not None]
    n = len(trainings)
    saved = set(recipe.steps if kept else ())
    fused = n == 1 and not recipe.deterministic
    statistics = [s.to(device) for s in images.statistics()]
    fed = images.on(device)

    def loss(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        x = standardise(x, *statistics)
        if recipe.gradient == "written out":
            return rounded_loss(weights, x, y)
        return training_loss(weights, x, y, recipe.precision, fused=fused)

    def wrapped(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
        compiled = torch.compile(loss) if recipe.compile else loss
        return in_parts(compiled, recipe.parts, dist.group.WORLD)

    losses = Losses(loss, n, device, wrapped)

    def save(state: State) -> None:
        means = apart({"train_loss": losses.means()}, n)
        for one, weights, mean in zip(kept, apart(state.weights, n), means, strict=True):
            test = ((standardise(x, *statistics), y) for x, y in fed.tests())
            scores = score_batches(weights, test, recipe.precision, fused=fused)
            one.save(state.step, weights, mean | scores)

    resumed = of_first(lambda: newest(kept))
    if resumed is None:
        first = [first_weights(recipe, images, one) for one in trainings]
        start = State(0, {name: w.to(device) for name, w in together(first).items()})
        if kept:
            save(start)
    else:
        step, parts = resumed
        tensors = together(parts)
        start = State.from_tensors(step, tensors, device)
        losses.tally = tensors["tally"].to(device)
    advance(start.step * n)
    feeds = joined([feed(fed, recipe, one, start.step) for one in trainings])
    steps = sgd(losses, start, feeds, recipe.n_steps, **schedule_of(recipe, trainings[0]))
    for state in steps:
        if state.step in saved:
            save(state)
        if kept and kept[0].due():
            parts = apart(state.tensors() | {"tally": losses.tally}, n)
            for one, tensors in zip(kept, parts, strict=True):
                one.checkpoint(state.step, tensors)
        advance(n)


def schedule_of(recipe: Recipe, training: Training) -> dict[str, Any]:
    """By which rule, and at which rates, a training updates its weights."""
    rule = training.variant.rule(recipe.learning_rate)
    return {"warmup_steps": recipe.warmup_steps, "n_cycles": recipe.n_cycles, **rule}


def first_weights(recipe: Recipe, images: Dataset, training: Training) -> Weights:
    """The weights that a training begins with."""
    variant = training.variant
    scale = cast(float, variant.init_scale)
    draw = generator(training.seed, "weights")
    weights = recipe.model.initial_weights(
        images.shape, images.n_classes, scale, variant.scaled, draw
    )
    return with_qk_norm(weights) if variant.attention == "qk_norm" else weights


def feed(images: Dataset, recipe: Recipe, training: Training, start: int) -> Batches:
    """The batches of a training from a step on; all random numbers are drawn on the CPU."""
    draw = partial(generator, training.seed)
    permute = training.variant.labels == "permuted"
    block = Block(recipe.parts, rank(), n_ranks())
    return images.feed(draw, recipe.batch_size, recipe.changes, permute, start, block)


def publish(
    runs: Path, variant: Variant, seeds: Sequence[int], recipe: Recipe, key: dict[str, Any]
) -> None:
    """Stack the seeds' snapshots of one variant into one run."""
    cell = {"variant": variant.run, "init_scale": variant.init_scale, "control": variant.control}
    matrices = {name: ["seed", *axes] for name, axes in MATRICES.items()}
    layout = Layout("vision", matrices, PRODUCTS, cell=cell, seeds=list(seeds))
    trainings = {seed: scratch_of(recipe, Training(variant, seed), key) for seed in seeds}
    with write_run(runs, variant.run, layout) as run:
        for step in recipe.steps:
            run.add(*stacked(trainings, step))
