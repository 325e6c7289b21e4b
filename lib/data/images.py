"""Labelled images: where they come from, and how they are fed to a training, resident on its device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

Augmentation = Literal["none", "crop_flip"]


@dataclass(frozen=True)
class Images:
    """A labelled set of images; labels count from 0 to `n_classes` - 1."""

    train_images: UInt8[Tensor, "train channel height width"]
    train_labels: Int[Tensor, " train"]
    test_images: UInt8[Tensor, "test channel height width"]
    test_labels: Int[Tensor, " test"]

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "Images":
        """Build from named tensors; raises `ValueError` where one is missing or its shape is off."""
        names = list(cls.__dataclass_fields__)
        if sorted(tensors) != sorted(names):
            raise ValueError(f"wanted a data set with {sorted(names)}, got {sorted(tensors)}")
        images = cls(**tensors)
        for part in ("train", "test"):
            pictures, labels = tensors[f"{part}_images"], tensors[f"{part}_labels"]
            if pictures.dtype != torch.uint8 or pictures.ndim != 4 or len(pictures) != len(labels):
                raise ValueError(
                    f"{part}: wanted uint8 images [n, channel, height, width] and n labels, "
                    f"got {pictures.dtype} {list(pictures.shape)} and {len(labels)} labels"
                )
        return images

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1


def read_images(path: Path) -> Images:
    """Read a data set that a generate stage wrote; raises `ValueError` where it is broken."""
    try:
        return Images.from_tensors(load_file(path))
    except (OSError, SafetensorError, ValueError) as error:
        raise ValueError(f"{path}: wanted a data set of images, got: {error}") from error


def digits(n_test: int, seed: int) -> Images:
    """The 1797 real 8 × 8 handwritten digits that scikit-learn carries (values 0 to 16), split by class.

    Source: UCI Optical Recognition of Handwritten Digits, `sklearn.datasets.load_digits`.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    values, classes = load_digits(return_X_y=True)  # pyright: ignore[reportCallIssue]
    pictures = values.reshape(-1, 1, 8, 8).astype(np.uint8)
    labels = classes.astype(np.int64)
    train, test = train_test_split(np.arange(len(labels)), test_size=n_test, random_state=seed, stratify=labels)
    tensors = [torch.from_numpy(a[i]) for i in (train, test) for a in (pictures, labels)]
    return Images(*tensors)


def channel_statistics(
    images: UInt8[Tensor, "n channel height width"],
) -> tuple[Float[Tensor, " channel"], Float[Tensor, " channel"]]:
    """Mean and standard deviation of each channel over all pixels of all images, exact, in float32."""
    n_channels = images.shape[1]
    counts = torch.stack(
        [torch.bincount(images[:, c].flatten().long(), minlength=256) for c in range(n_channels)]
    ).double()
    values = torch.arange(256, dtype=torch.float64, device=images.device)
    mean = counts @ values / counts.sum(1)
    variance = counts @ values.square() / counts.sum(1) - mean.square()
    return mean.float(), variance.clamp_min(1e-12).sqrt().float()


def standardise(
    images: UInt8[Tensor, "batch channel height width"],
    mean: Float[Tensor, " channel"],
    deviation: Float[Tensor, " channel"],
) -> Float[Tensor, "batch channel height width"]:
    """(x - mean) / standard deviation, channel by channel."""
    return (images.float() - mean[:, None, None]) / deviation[:, None, None]


def crop_and_flip(
    images: UInt8[Tensor, "batch channel height width"], padding: int, generator: torch.Generator
) -> UInt8[Tensor, "batch channel height width"]:
    """Each image shifted by up to `padding` pixels in each direction, zeros coming in, and half of them mirrored."""
    n, _, height, width = images.shape
    device = images.device
    shift = torch.randint(0, 2 * padding + 1, (2, n, 1), generator=generator, device=device)
    flip = torch.randint(0, 2, (n, 1), generator=generator, device=device)
    rows = torch.arange(height, device=device) + shift[0]
    cols = torch.arange(width, device=device)
    cols = torch.where(flip == 1, width - 1 - cols, cols) + shift[1]
    padded = torch.nn.functional.pad(images, [padding] * 4)
    return padded[
        torch.arange(n, device=device)[:, None, None, None],
        torch.arange(images.shape[1], device=device)[:, None, None],
        rows[:, None, :, None],
        cols[:, None, None, :],
    ]


def permuted(labels: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, " n"]:
    """The labels in random order: every class as frequent as before, and nothing to learn but by heart."""
    return labels[torch.randperm(len(labels), generator=generator).to(labels.device)]


def batches(
    images: UInt8[Tensor, "n channel height width"],
    labels: Int[Tensor, " n"],
    batch_size: int,
    augmentation: Augmentation,
    generator: Callable[[str, int], torch.Generator],
    start: int = 0,
) -> Iterator[tuple[UInt8[Tensor, "batch channel height width"], Int[Tensor, " batch"]]]:
    """Minibatches from step `start` on, without end; each epoch is shuffled anew, the incomplete batch left out.

    `generator(purpose, epoch)` gives the randomness of one epoch, so that batch t is the same
    whether the training came there in one go or was resumed. Everything stays on the device of `images`.
    """
    per_epoch = len(labels) // batch_size
    if per_epoch == 0:
        raise ValueError(f"batch_size: wanted at most the {len(labels)} samples, got {batch_size}")
    for epoch in range(start // per_epoch, 2**62):
        order = torch.randperm(len(labels), generator=generator("order", epoch)).to(images.device)
        skipped = max(0, start - epoch * per_epoch)
        epoch_images = images
        if augmentation == "crop_flip":
            padding = images.shape[-1] // 8
            epoch_images = crop_and_flip(images, padding, generator("augmentation", epoch))
        for index in order[: per_epoch * batch_size].view(per_epoch, batch_size)[skipped:]:
            yield epoch_images[index], labels[index]
