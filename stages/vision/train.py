"""Train a vision transformer for every variant (init scale, optimiser, labels) and seed; write their snapshots."""

import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lib.data.images import (
    Images,
    batches,
    channel_statistics,
    crop_and_flip,
    permuted,
    read_images,
    standardise,
)
from lib.data.randaugment import randaugment
from lib.dynamics.sgd import State, saved_steps, sgd
from lib.io.command import run
from lib.io.compute import advance, available_cores, generator, matmul_rate, spread, use_device
from lib.io.files import InputError, sha256
from lib.io.live import Curves
from lib.io.params import Count, Interval, Positive, Seed, read_params
from lib.io.runs import Layout, clear_runs, write_run
from lib.io.scratch import Pace, Scratch, code_digest
from lib.models.attention import PRODUCTS
from lib.models.vit import MATRICES, Scaled, ViT, forward_flops, logits, score

Size = Annotated[int, Interval("[1, 16384]")]
InitScale = Annotated[float, Interval("(0, 100]")]


@dataclass(frozen=True)
class Model:
    patch_size: Size
    d_model: Size
    n_heads: Size
    d_head: Size
    d_mlp: Size
    n_layers: Annotated[int, Interval("[1, 256]")]


@dataclass(frozen=True)
class RandAugment:
    n_operations: Annotated[int, Interval("[1, 14]")]
    magnitude: Annotated[int, Interval("[0, 30]")]


@dataclass(frozen=True)
class Variant:
    """One way to train; every seed trains each."""

    init_scale: InitScale
    labels: Literal["true", "permuted"] = "true"
    optimizer: Literal["adam", "sgd"] = "adam"
    learning_rate: Positive | None = None
    scaled: Scaled = "layers"

    @property
    def control(self) -> str:
        """What differs from the plain training at this init scale, or `none`."""
        plain = asdict(Variant(self.init_scale))
        differs = [
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in asdict(self).items()
            if value != plain[key]
        ]
        return ",".join(differs).replace(" ", "-") or "none"

    @property
    def name(self) -> str:
        """The init scale and the control: the run's folder."""
        name = f"init_scale={self.init_scale:g}"
        return name if self.control == "none" else f"{name},{self.control}"


@dataclass(frozen=True)
class Train:
    device: Literal["cpu", "cuda"]
    precision: Literal["float32", "bfloat16"]
    compile: bool
    max_hours: Positive
    threads: Annotated[int, Interval("[1, 64]")]
    seeds: tuple[Seed, ...]
    init_scales: tuple[InitScale, ...]
    controls: tuple[Variant, ...]
    model: Model
    augmentation: Literal["none", "crop_flip"]
    randaugment: RandAugment | None
    batch_size: Annotated[int, Interval("[1, 65536]")]
    n_steps: Annotated[int, Interval("[1, 1e8]")]
    warmup_steps: Annotated[int, Interval("[0, 1e8]")]
    learning_rate: Positive
    snapshot_every: Count

    def __post_init__(self) -> None:
        if not self.seeds or not self.variants:
            raise ValueError("seeds, init_scales: wanted at least one of each, got none")
        if self.warmup_steps > self.n_steps:
            raise ValueError(f"warmup_steps: wanted at most n_steps, got {self.warmup_steps}")
        names = [variant.name for variant in self.variants]
        if len(set(names)) < len(names):
            raise ValueError(f"controls: wanted variants that differ, got {names}")

    @property
    def variants(self) -> list[Variant]:
        return [Variant(scale) for scale in self.init_scales] + list(self.controls)


def main(section: str, dataset: Path, runs: Path) -> None:
    params = read_params(section, Train)
    use_device(params.device)
    images = read_images(dataset)
    key = {"data": sha256(dataset), "code": code_digest()}
    cells = [(variant, seed) for variant in params.variants for seed in params.seeds]
    estimate(params, images, dataset)
    clear_runs(runs)
    trainings = spread(
        train_cell,
        [(dataset, params, variant, seed, key, section) for variant, seed in cells],
        n_processes=1 if params.device == "cuda" else available_cores() // params.threads or 1,
        n_threads=params.threads,
        total=len(cells) * params.n_steps,
        label=section,
    )
    list(trainings)
    for variant in params.variants:
        publish(runs, params, variant, key)


def estimate(params: Train, images: Images, dataset: Path) -> None:
    """Say what the training will cost before it begins; raises `InputError` above `max_hours` or the free disk.

    Time: the operations over 40 % of this device's rate for matrix products [C]; disk: every snapshot three times (in
    scratch, in the run, in DVC's cache).
    """
    device, shape = use_device(params.device), tuple(images.train_images.shape[1:])
    if params.batch_size > len(images.train_labels):
        raise InputError(f"batch_size: wanted at most {len(images.train_labels)} images, got {params.batch_size}")
    if params.randaugment is not None and shape[0] != 3:
        raise InputError(f"randaugment: wanted images of 3 channels (or null), got {shape[0]}")
    try:
        model = ViT(**asdict(params.model))
        weights = model.initial_weights(shape, images.n_classes, 1.0, "layers", torch.Generator())
    except ValueError as error:
        raise InputError(str(error)) from error
    n_cells = len(params.variants) * len(params.seeds)
    flops = 3 * forward_flops(weights, shape) * params.batch_size * params.n_steps * n_cells
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[params.precision]
    n_parallel = 1 if device.type == "cuda" else available_cores() // params.threads or 1
    rate = 0.4 * n_parallel * matmul_rate(device, dtype, 8192 if device.type == "cuda" else 768)
    hours = flops / rate / 3600
    n_bytes = sum(w.numel() * w.element_size() for w in weights.values())
    disk = 3 * n_bytes * n_cells * len(saved_steps(params.n_steps, params.snapshot_every))
    print(
        f"{n_cells} trainings of {params.n_steps} steps: {flops:.2g} operations, about {hours:.2g} h on this "
        f"{params.device}; {disk / 1e9:.2g} GB of snapshots",
        file=sys.stderr,
        flush=True,
    )
    if hours > params.max_hours:
        raise InputError(f"max_hours: wanted at most {params.max_hours:g} h, got about {hours:.3g} h")
    free = shutil.disk_usage(dataset.parent).free
    if disk > free:
        raise InputError(f"disk: wanted {disk / 1e9:.3g} GB for snapshots, got {free / 1e9:.3g} free")


def scratch_of(params: Train, variant: Variant, seed: int, key: dict[str, str]) -> Scratch:
    """The scratch of one variant and seed, which no other variant or seed has a part in."""
    others = ("seeds", "init_scales", "controls", "max_hours")
    shared = {name: value for name, value in asdict(params).items() if name not in others}
    return Scratch("vision", {**key, **shared, "variant": asdict(variant), "seed": seed})


def train_cell(dataset: Path, params: Train, variant: Variant, seed: int, key: dict[str, str], section: str) -> None:
    """Train one variant from one seed, going on where an interrupted training left off."""
    device = use_device(params.device)
    steps = saved_steps(params.n_steps, params.snapshot_every)
    cell = f"{section}/{variant.name}/seed={seed}"
    with scratch_of(params, variant, seed, key) as scratch, Curves(cell) as curves:
        rows = {step: snapshot[1] for step in steps for snapshot in [scratch.load(snapshot_name(step))] if snapshot}
        saved = list(rows)
        if saved == steps:
            for row in rows.values():
                curves.log(row)
            advance(params.n_steps)
            return
        images = read_images(dataset)
        statistics = [s.to(device) for s in channel_statistics(images.train_images)]
        train_images, train_labels, test_images, test_labels = (tensor.to(device) for tensor in vars(images).values())
        if variant.labels == "permuted":
            train_labels = permuted(train_labels, generator(seed, "permuted labels"))

        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            with torch.autocast(device.type, torch.bfloat16, params.precision == "bfloat16"):
                found = logits(weights, standardise(x, *statistics))
            return cross_entropy(found.float(), y)

        def augment(whole: Tensor, epoch: int) -> Tensor:
            """A new version of the training images for an epoch, made on their device."""
            if params.augmentation != "none":
                source = generator(seed, "crop and flip", epoch, device=device)
                whole = crop_and_flip(whole, whole.shape[-1] // 8, source)
            if params.randaugment is not None:
                source = generator(seed, "randaugment", epoch, device=device)
                whole = randaugment(whole, params.randaugment.n_operations, params.randaugment.magnitude, source)
            return whole

        test = standardise(test_images, *statistics)

        def save(state: State, tally: Tensor) -> None:
            test_loss, test_accuracy = score(state.weights, test, test_labels)
            row = {
                "step": state.step,
                "train_loss": (tally[0] / tally[1]).item(),
                "test_loss": test_loss,
                "test_accuracy": test_accuracy,
            }
            scratch.save(snapshot_name(state.step), state.weights, row)
            curves.log(row)

        begun = resume(scratch, steps, saved, device)
        if begun is None:
            weights = ViT(**asdict(params.model)).initial_weights(
                tuple(images.train_images.shape[1:]),
                images.n_classes,
                variant.init_scale,
                variant.scaled,
                generator(seed, "weights"),
            )
            begun = State(0, {name: w.to(device) for name, w in weights.items()}), torch.zeros(2)
            save(*begun)
        else:
            for row in rows.values():
                if row["step"] <= begun[0].step:
                    curves.log(row)
        start, tally = begun
        tally = tally.to(device)
        advance(start.step)
        states = sgd(
            torch.compile(loss) if params.compile else loss,
            start,
            batches(
                train_images,
                train_labels,
                params.batch_size,
                augment,
                lambda purpose, epoch: generator(seed, purpose, epoch),
                start.step,
            ),
            params.n_steps,
            optimizer=variant.optimizer,
            learning_rate=variant.learning_rate or params.learning_rate,
            warmup_steps=params.warmup_steps,
        )
        pace = Pace()
        for state in states:
            tally += torch.stack([state.loss, torch.ones_like(state.loss)])
            if state.step in steps:
                save(state, tally)
                tally.zero_()
            if pace.due():
                with pace:
                    checkpoint(scratch, state, tally)
            advance()
        for name in scratch.names("checkpoint"):
            scratch.drop(name)


def snapshot_name(step: int) -> str:
    return f"snapshot-{step:09d}"


def checkpoint(scratch: Scratch, state: State, tally: Tensor) -> None:
    """Save all that the training needs to go on bit for bit; the two newest checkpoints are kept."""
    tensors = {f"weights {name}": weight for name, weight in state.weights.items()}
    tensors |= {f"moments {name}": moment for name, moment in state.moments.items()}
    tensors |= {"tally": tally, "loss": state.loss}
    scratch.save(f"checkpoint-{state.step:09d}", tensors, {"step": state.step})
    for name in scratch.names("checkpoint")[:-2]:
        scratch.drop(name)


def resume(scratch: Scratch, steps: list[int], saved: list[int], device: torch.device) -> tuple[State, Tensor] | None:
    """The newest whole checkpoint all of whose earlier snapshots are whole, or None."""
    for name in reversed(scratch.names("checkpoint")):
        loaded = scratch.load(name)
        if loaded is None:
            continue
        tensors, note = loaded
        if all(step in saved for step in steps if step <= note["step"]):
            print(f"resumed at step {note['step']}: {scratch.folder}", file=sys.stderr, flush=True)
            parts = {
                part: {
                    key.removeprefix(part + " "): tensor.to(device)
                    for key, tensor in tensors.items()
                    if key.startswith(part + " ")
                }
                for part in ("weights", "moments")
            }
            return State(note["step"], **parts, loss=tensors["loss"]), tensors["tally"]
    return None


def publish(runs: Path, params: Train, variant: Variant, key: dict[str, str]) -> None:
    """Stack the seeds' snapshots of one variant into one run."""
    layout = Layout(
        family="vision",
        matrices={name: ["seed", *axes] for name, axes in MATRICES.items()},
        products=PRODUCTS,
        cell={
            "variant": variant.name,
            "init_scale": variant.init_scale,
            "control": variant.control,
        },
        seeds=list(params.seeds),
    )
    with write_run(runs, variant.name, layout) as run:
        for step in saved_steps(params.n_steps, params.snapshot_every):
            parts = []
            for seed in params.seeds:
                with scratch_of(params, variant, seed, key) as scratch:
                    part = scratch.load(snapshot_name(step))
                if part is None:
                    raise OSError(f"{scratch.folder}: a snapshot broke after training; run again")
                parts.append(part)
            weights = {name: torch.stack([w[name] for w, _ in parts]) for name in parts[0][0]}
            run.add(
                weights,
                [{"seed": s, **row} for s, (_, row) in zip(params.seeds, parts, strict=True)],
            )


if __name__ == "__main__":
    run(main)
