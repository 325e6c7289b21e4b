"""Train a vision transformer for every variant (init scale, optimiser, labels) and seed; write
their snapshots.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import torch
from torch import Tensor

from lib.files.files import InputError
from lib.files.inputs import read_as
from lib.files.memory import check_memory
from lib.files.params import Count, Interval, Positive, Seeds, read_params
from lib.files.runs import Layout, clear_runs, write_run
from lib.training.attention import PRODUCTS, fuse
from lib.training.devices import Device, generator, kind_of, use_device
from lib.training.sgd import Optimizer, State, saved_steps, sgd
from lib.training.stacked import Losses, apart, groups, joined, together
from lib.vision.augmentation import RandAugment, augmented
from lib.vision.budget import check_budget
from lib.vision.cases import chosen_cases, differences
from lib.vision.images import (
    Images,
    batches,
    channel_statistics,
    permuted,
    read_images,
    standardise,
)
from lib.vision.vit import (
    MATRICES,
    Scaled,
    ViT,
    Weights,
    score,
    training_cost,
    training_loss,
    training_memory,
)
from lib.work.cells import Cell, Checkpoints, key_of, newest, stacked, unfinished
from lib.work.command import OutFolder, run
from lib.work.compute import n_parallel, spread
from lib.work.live import Curves
from lib.work.progress import advance

InitScale = Annotated[float, Interval("(0, 100]")]
Seeded = tuple["Variant", int]  # and its seed
# bytes of a snapshot beside its weights: their names and places, the layout, a row and a digest [C]
HEADER = 5000


@dataclass(frozen=True)
class Variant:
    """One way to train: a case of a table, without an init scale one at every scale of the plain
    training.
    """

    init_scale: InitScale | None = None
    labels: Literal["true", "permuted"] = "true"
    optimizer: Optimizer = "adam"
    learning_rate: Positive | None = None
    weight_decay: Positive | None = None  # of adamw
    muon_of: Literal["matrices", "heads"] = (
        "matrices"  # what muon orthogonalises: whole, or head by head
    )
    scaled: Scaled = "layers"
    name: str = "plain"

    def __post_init__(self) -> None:
        if (self.weight_decay is None) == (self.optimizer == "adamw"):
            raise ValueError(
                f"weight_decay: wanted it of adamw alone, got {self.weight_decay} of "
                f"{self.optimizer}"
            )

    def rule(self, params: "Train") -> dict[str, Any]:
        """How it updates; its learning rate, where it has one, takes the place of the params'."""
        matrices = {
            name: len(axes) - 1 if self.muon_of == "matrices" else 2
            for name, axes in MATRICES.items()
        }
        rates = {
            "learning_rate": self.learning_rate or params.learning_rate,
            "weight_decay": self.weight_decay or 0.0,
        }
        return {
            "optimizer": self.optimizer,
            "matrices": matrices,
            "warmup_steps": params.warmup_steps,
            **rates,
        }

    @property
    def control(self) -> str:
        """What differs from the plain training at this init scale, or `none`."""
        return differences(self, Variant(self.init_scale, name=self.name))

    @property
    def run(self) -> str:
        """The init scale and the control: the run's folder."""
        return f"init_scale={self.init_scale:g},{self.control}".removesuffix(",none")


@dataclass(frozen=True)
class Train(Seeds):
    init_scales: tuple[InitScale, ...]
    controls: tuple[str, ...]
    device: Device
    precision: Literal["float32", "bfloat16"]
    compile: bool
    max_hours: Positive
    model: ViT
    augmentation: Literal["none", "crop_flip"]
    batch_size: Annotated[int, Interval("[1, 65536]")]
    n_steps: Annotated[int, Interval("[1, 1e8]")]
    warmup_steps: Annotated[int, Interval("[0, 1e8]")]
    learning_rate: Positive
    snapshot_every: Count
    threads: Annotated[int, Interval("[1, 64]")] = 1
    cells_together: Count = 1  # of seeds and variants: so many are trained as one stacked model
    deterministic: bool = False
    randaugment: RandAugment | None = None

    def __post_init__(self) -> None:
        if not self.init_scales and not self.controls:
            raise ValueError("init_scales, controls: wanted at least one of them, got none")
        if self.warmup_steps > self.n_steps:
            raise ValueError(f"warmup_steps: wanted at most n_steps, got {self.warmup_steps}")

    @property
    def steps(self) -> list[int]:
        """The steps whose snapshots are saved."""
        return saved_steps(self.n_steps, self.snapshot_every)


def main(section: str, controls: Path, dataset: Path, runs: OutFolder) -> None:
    params = read_params(section, Train)
    variants = chosen(params, controls)
    images = read_as("a data set of images", read_images, dataset)
    estimate(params, len(variants) * params.n_seeds, images, dataset.parent)
    clear_runs(runs)
    key = key_of(train_cells, dataset, device=params.device)
    every = [(variant, seed) for variant in variants for seed in params.seeds]
    grouped = groups(every, lambda cell: str(cell[0].rule(params)), params.cells_together)
    jobs, total = (
        [(section, dataset, params, cells, key) for cells in grouped],
        len(every) * params.n_steps,
    )
    how = {"device": params.device, "n_threads": params.threads}
    list(spread(train_cells, jobs, **how, total=total, label=section))
    for variant in variants:
        publish(runs, variant, params, key)


def chosen(params: Train, controls: Path) -> list[Variant]:
    """The plain training at every init scale, and the cases of the table that the params name."""
    variants = [Variant(scale) for scale in params.init_scales]
    for case in chosen_cases(controls, Variant, params.controls, "controls"):
        scales = params.init_scales if case.init_scale is None else [case.init_scale]
        variants += [replace(case, init_scale=scale) for scale in scales]
    if len({variant.run for variant in variants}) < len(variants):
        raise InputError(
            f"controls: wanted variants that differ, got {[variant.run for variant in variants]}"
        )
    return variants


def estimate(params: Train, n_cells: int, images: Images, folder: Path) -> None:
    """Say what the training will cost; raises `InputError` for what is too long, too large for the
    disk, or no fit.
    """
    shape = tuple(images.train_images.shape[1:])
    if params.batch_size > len(images.train_labels):
        raise InputError(
            f"batch_size: wanted at most {len(images.train_labels)} images, got {params.batch_size}"
        )
    if params.randaugment is not None and shape[0] != 3:
        raise InputError(
            f"randaugment: wanted images of 3 channels (or no randaugment), got {shape[0]}"
        )
    try:
        flops, of_weights = training_cost(params.model, shape, images.n_classes)
    except ValueError as error:
        raise InputError(str(error)) from error
    n_bytes = (of_weights + HEADER) * n_cells * len(params.steps)
    check_memory("model", training_memory(params.model, shape, of_weights, params.batch_size))
    machine = (
        use_device(params.device),
        params.precision,
        n_parallel(kind_of(params.device), params.threads),
    )
    what = (
        f"{n_cells} trainings of {params.n_steps} steps",
        flops * params.batch_size * params.n_steps * n_cells,
    )
    check_budget(*what, n_bytes, *machine, max_hours=params.max_hours, folder=folder)


def scratch_of(params: Train, variant: Variant, seed: int, key: dict[str, Any]) -> Cell:
    """The scratch of one variant and seed, in which no other has a part; `key` has the digests of
    images and code.
    """
    others = ("n_seeds", "first_seed", "init_scales", "controls", "max_hours")
    shared = {name: value for name, value in asdict(params).items() if name not in others}
    return Cell("vision", {**key, **shared, "variant": asdict(variant), "seed": seed})


def train_cells(
    section: str, dataset: Path, params: Train, cells: list[Seeded], key: dict[str, Any]
) -> None:
    """Train variants from their seeds, as one where there are several, going on where an
    interrupted one left off.
    """
    places = [
        (scratch_of(params, *cell, key), Curves(f"{section}/{cell[0].run}/seed={cell[1]}"))
        for cell in cells
    ]
    with unfinished(dict(zip(cells, places, strict=True)), params.steps) as wanted:
        advance(params.n_steps * (len(cells) - len(wanted)))
        if wanted:
            train(read_images(dataset), params, wanted)


def train(images: Images, params: Train, wanted: dict[Seeded, Checkpoints]) -> None:
    """Train from the newest checkpoint to the last step, several as one; a GPU is waited for only
    to save something.
    """
    device, cells, kept = (
        use_device(params.device, params.deterministic),
        list(wanted),
        list(wanted.values()),
    )
    variant, n, saved = cells[0][0], len(cells), set(params.steps)
    fuse(n == 1 and not params.deterministic)
    statistics = [s.to(device) for s in channel_statistics(images.train_images)]
    x, y, test_images, test_labels = (tensor.to(device) for tensor in vars(images).values())
    test = standardise(test_images, *statistics)

    def loss(weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        return training_loss(weights, standardise(x, *statistics), y, params.precision)

    def save(state: State) -> None:
        for one, w, mean in zip(
            kept, apart(state.weights, n), apart({"train_loss": losses.means()}, n), strict=True
        ):
            one.save(state.step, w, mean | score(w, test, test_labels, params.precision))

    losses, resumed = (
        Losses(loss, n, device, *([torch.compile] if params.compile else [])),
        newest(kept),
    )
    if resumed is None:
        begin = partial(params.model.initial_weights, tuple(x.shape[1:]), images.n_classes)
        first = [
            begin(cast(float, v.init_scale), v.scaled, generator(seed, "weights"))
            for v, seed in cells
        ]
        start = State(0, {name: w.to(device) for name, w in together(first).items()})
        save(start)
    else:
        tensors = together(resumed[1])
        start, losses.tally = (
            State.from_tensors(resumed[0], tensors, device),
            tensors["tally"].to(device),
        )
    advance(start.step * n)
    feeds = joined([feed(x, y, params, *cell, start.step) for cell in cells])
    for state in sgd(losses, start, feeds, params.n_steps, **variant.rule(params)):
        if state.step in saved:
            save(state)
        if kept[0].due():
            for one, tensors in zip(
                kept, apart(state.tensors() | {"tally": losses.tally}, n), strict=True
            ):
                one.checkpoint(state.step, tensors)
        advance(n)


def feed(
    x: Tensor, y: Tensor, params: Train, variant: Variant, seed: int, start: int
) -> Iterator[tuple]:
    """The batches of a variant and seed from a step on; random numbers are drawn on the CPU for
    every device.
    """
    draw = partial(generator, seed)
    y = permuted(y, draw("permuted labels")) if variant.labels == "permuted" else y
    changed = partial(augmented, draw, params.augmentation != "none", params.randaugment)
    return batches(x, y, params.batch_size, changed, draw, start)


def publish(runs: Path, variant: Variant, params: Train, key: dict[str, Any]) -> None:
    """Stack the seeds' snapshots of one variant into one run."""
    cell = {"variant": variant.run, "init_scale": variant.init_scale, "control": variant.control}
    matrices = {name: ["seed", *axes] for name, axes in MATRICES.items()}
    layout = Layout("vision", matrices, PRODUCTS, cell=cell, seeds=list(params.seeds))
    trainings = {seed: scratch_of(params, variant, seed, key) for seed in params.seeds}
    with write_run(runs, variant.run, layout) as run:
        for step in params.steps:
            run.add(*stacked(trainings, step))


if __name__ == "__main__":
    run(main)
