"""The first epochs of the paper's model: `python -m published.cifar10_paper_model.train
--images=data/vision/cifar10/images --labels=true`, and another process with `--labels=permuted`.

It trains until it is stopped, at any time: snapshots are kept, and the same command goes on after
the newest checkpoint, as long as the code that trains is the same. `run` measures what is kept. The
recipe has all 500 epochs, so that the learning rate is that of their beginning. A step takes six to
seven seconds of one core that has AMX.
"""

import time
from pathlib import Path
from typing import Any, Literal, get_args

from lib.files.files import InputError
from lib.training.devices import use_threads
from lib.vision.datasets import dataset_file
from lib.vision.images import Images, read_images
from lib.vision.trainings import Recipe, Training, scratch_of, train
from lib.vision.variants import Variant
from lib.vision.vit import ViT
from lib.work.cells import Cell, Checkpoints, key_of
from lib.work.command import run
from lib.work.live import Curves
from lib.work.scratch import Tensors

Labels = Literal["true", "permuted"]
LABELS: tuple[Labels, ...] = get_args(Labels)
INIT_SCALE = 1.0
SEED = 0
N_SCORED = 2000  # test images by which every snapshot is scored
N_STEPS = 48500  # of the recipe: 500 epochs
RECIPE = Recipe(
    device="cpu",
    precision="bfloat16",
    compile=False,
    gradient="written out",
    model=ViT(patch_size=4, d_model=512, n_heads=8, d_head=128, d_mlp=512, n_layers=6),
    augmentation="crop_flip",
    batch_size=512,
    n_steps=N_STEPS,
    warmup_steps=1455,
    learning_rate=1e-4,
    snapshot_every=49,  # half an epoch
)


class Timed(Checkpoints):
    """Checkpoints whose rows tell the CPU seconds of the process so far."""

    def save(self, step: int, tensors: Tensors, scores: dict[str, Any]) -> None:
        """Save the snapshot of a step."""
        row = scores | {"cpu_seconds": time.process_time()}
        super().save(step, tensors, row)
        said = ", ".join(f"{name} {float(value):.4f}" for name, value in row.items())
        print(f"{time.strftime('%H:%M:%S')} step {step}: {said}", flush=True)


def main(images: Path, labels: str) -> None:
    if labels not in LABELS:
        raise InputError(f"labels: wanted one of {list(LABELS)}, got {labels}")
    use_threads(1)
    file = dataset_file(images)
    one = LABELS[LABELS.index(labels)]
    with cell_of(file, one) as cell, Curves(f"cifar10_paper_model/{labels}") as curves:
        kept = Timed(cell, RECIPE.steps, curves)
        train(scored_by_few(read_images(file)), RECIPE, {training(one): kept})


def training(labels: Labels) -> Training:
    """The training on these labels."""
    return Training(Variant(INIT_SCALE, labels), SEED)


def cell_of(file: Path, labels: Labels) -> Cell:
    """The cell of the training on these labels of the images in the file."""
    key = key_of(train, file) | {"n_scored": N_SCORED}
    return scratch_of(RECIPE, training(labels), key)


def scored_by_few(images: Images) -> Images:
    """The same images, but of those of the test the first `N_SCORED`."""
    tests = {name: vars(images)[name][:N_SCORED] for name in ("test_images", "test_labels")}
    return Images(**vars(images) | tests)


if __name__ == "__main__":
    run(main)
