"""Train a vision transformer for every variant (init scale, optimiser, labels) and seed; write their snapshots."""

import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lib.data.images import (
    Augmentation,
    batches,
    channel_statistics,
    permuted,
    read_images,
    standardise,
)
from lib.dynamics.sgd import State, saved_steps, sgd
from lib.io.command import run
from lib.io.compute import advance, available_cores, generator, spread, use_device
from lib.io.files import sha256
from lib.io.params import Count, Interval, Positive, Seed, read_params
from lib.io.runs import Layout, write_run
from lib.io.scratch import Scratch, code_digest
from lib.models.attention import PRODUCTS
from lib.models.vit import MATRICES, Scaled, ViT, logits

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
    threads: Annotated[int, Interval("[1, 64]")]
    seeds: tuple[Seed, ...]
    init_scales: tuple[InitScale, ...]
    controls: tuple[Variant, ...]
    model: Model
    augmentation: Augmentation
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
    read_images(dataset)
    key = {"data": sha256(dataset), "code": code_digest()}
    cells = [(variant, seed) for variant in params.variants for seed in params.seeds]
    trained = spread(
        train_cell,
        [(dataset, params, variant, seed, key) for variant, seed in cells],
        n_processes=1 if params.device == "cuda" else available_cores() // params.threads,
        n_threads=params.threads,
        total=len(cells) * params.n_steps,
        label=section,
    )
    for _ in trained:
        pass
    shutil.rmtree(runs, ignore_errors=True)
    for variant in params.variants:
        publish(runs / variant.name, params, variant, key)


def scratch_of(params: Train, variant: Variant, seed: int, key: dict[str, str]) -> Scratch:
    """The scratch of one variant and seed, which no other variant or seed has a part in."""
    others = ("seeds", "init_scales", "controls")
    shared = {name: value for name, value in asdict(params).items() if name not in others}
    return Scratch("vision", {**key, **shared, "variant": asdict(variant), "seed": seed})


def train_cell(dataset: Path, params: Train, variant: Variant, seed: int, key: dict[str, str]) -> None:
    """Train one variant from one seed, going on where an interrupted training left off."""
    device = use_device(params.device)
    steps = saved_steps(params.n_steps, params.snapshot_every)
    with scratch_of(params, variant, seed, key) as scratch:
        saved = [step for step in steps if scratch.load(snapshot_name(step))]
        if saved == steps:
            advance(params.n_steps)
            return
        images = read_images(dataset)
        statistics = [s.to(device) for s in channel_statistics(images.train_images)]
        train_images, train_labels, test_images, test_labels = (tensor.to(device) for tensor in vars(images).values())
        if variant.labels == "permuted":
            train_labels = permuted(train_labels, generator(seed, "permuted labels"))

        def loss(weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(logits(weights, standardise(x, *statistics)), y)

        @torch.no_grad()
        def save(state: State, tally: Tensor) -> None:
            found = logits(state.weights, standardise(test_images, *statistics))
            row = {
                "step": state.step,
                "train_loss": (tally[0] / tally[1]).item(),
                "test_loss": cross_entropy(found, test_labels).item(),
                "test_accuracy": (found.argmax(1) == test_labels).double().mean().item(),
            }
            scratch.save(snapshot_name(state.step), state.weights, row)

        begun = resume(scratch, steps, saved)
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
        start, tally = begun
        tally = tally.to(device)
        advance(start.step)
        states = sgd(
            loss,
            start,
            batches(
                train_images,
                train_labels,
                params.batch_size,
                params.augmentation,
                lambda purpose, epoch: generator(seed, purpose, epoch, device=device),
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


def resume(scratch: Scratch, steps: list[int], saved: list[int]) -> tuple[State, Tensor] | None:
    """The newest whole checkpoint all of whose earlier snapshots are whole, or None."""
    for name in reversed(scratch.names("checkpoint")):
        loaded = scratch.load(name)
        if loaded is None:
            continue
        tensors, note = loaded
        if all(step in saved for step in steps if step <= note["step"]):
            print(f"resumed at step {note['step']}: {scratch.folder}", file=sys.stderr, flush=True)
            parts = {
                part: {k.removeprefix(part + " "): t for k, t in tensors.items() if k.startswith(part + " ")}
                for part in ("weights", "moments")
            }
            return State(note["step"], **parts, loss=tensors["loss"]), tensors["tally"]
    return None


class Pace:
    """Says when the next checkpoint is due: after five seconds, or thirty times what the last one cost."""

    def __init__(self) -> None:
        self.cost = 0.0
        self.end = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self.end > max(5.0, 30 * self.cost)

    def __enter__(self) -> None:
        self.start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.end = time.monotonic()
        self.cost = self.end - self.start


def publish(folder: Path, params: Train, variant: Variant, key: dict[str, str]) -> None:
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
    with write_run(folder, layout) as run:
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
