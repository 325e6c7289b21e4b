"""Labelled images, and how they are fed to a training, resident on its device."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Int, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from lib.vision.augmentation import Augmentation, augmented
from lib.vision.parts import Block
from lib.vision.pictures import channel_counts, channel_moments

SCORED = 1000  # test images that are scored together
Batches = Iterator[tuple[UInt8[Tensor, "batch channel height width"], Int[Tensor, " batch"]]]


@dataclass(frozen=True)
class Images:
    """A labelled set of images; labels count from 0 to `n_classes` - 1."""

    train_images: UInt8[Tensor, "train channel height width"]
    train_labels: Int[Tensor, " train"]
    test_images: UInt8[Tensor, "test channel height width"]
    test_labels: Int[Tensor, " test"]

    crops: ClassVar = ("none", "crop_flip")  # how they may be cropped in training

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> "Images":
        """Build from named tensors, as a generate stage wrote them.

        Raises `ValueError` where one is missing, or a part has no image.
        """
        names = [field.name for field in fields(cls)]
        if sorted(tensors) != sorted(names):
            raise ValueError(f"wanted a data set with {sorted(names)}, got {sorted(tensors)}")
        for part in ("train", "test"):
            if not len(tensors[f"{part}_images"]):
                raise ValueError(f"{part}: wanted one image or more, got none")
        return cls(**tensors)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(max(self.train_labels.max(), self.test_labels.max())) + 1

    @property
    def n_train(self) -> int:
        """The number of training images."""
        return len(self.train_labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return tuple(self.train_images.shape[1:])

    def on(self, device: torch.device) -> "Images":
        """The same images on a device."""
        return Images(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def statistics(self) -> tuple[Float[Tensor, " channel"], Float[Tensor, " channel"]]:
        """Mean and standard deviation of each channel of the training images."""
        return channel_statistics(self.train_images)

    def feed(
        self,
        draw: Callable[..., torch.Generator],
        batch_size: int,
        how: Augmentation,
        permute: bool,
        start: int,
        block: Block,
    ) -> Batches:
        """The block of each batch of a training from a step on, without end, on their device.

        `draw` gives a generator for each named purpose; with `permute` labels are in random order.
        """
        labels = self.train_labels
        if permute:
            labels = permuted(labels, draw("permuted labels"))
        changed = partial(augmented, draw, how)
        own = block.of(batch_size)
        for x, y in batches(self.train_images, labels, batch_size, changed, draw, start):
            yield x[own], y[own]

    def tests(self, n_images: int | None = None) -> Batches:
        """The first `n_images` of the test images, or all, in batches."""
        images = self.test_images[:n_images].split(SCORED)
        labels = self.test_labels[:n_images].split(SCORED)
        return zip(images, labels, strict=True)


def read_images(path: Path) -> Images:
    """Read a data set that a generate stage wrote; raises `ValueError` where it is broken."""
    try:
        return Images.from_tensors(load_file(path))
    except (OSError, SafetensorError, ValueError) as error:
        raise ValueError(f"{path}: wanted a data set of images, got: {error}") from error


def channel_statistics(
    images: UInt8[Tensor, "n channel height width"],
) -> tuple[Float[Tensor, " channel"], Float[Tensor, " channel"]]:
    """Mean and standard deviation of each channel over all pixels of all images, exact, in
    float32.
    """
    mean, deviation = channel_moments(channel_counts(images.numpy()))
    return torch.from_numpy(mean), torch.from_numpy(deviation)


def standardise(
    images: UInt8[Tensor, "batch channel height width"],
    mean: Float[Tensor, " channel"],
    deviation: Float[Tensor, " channel"],
) -> Float[Tensor, "batch channel height width"]:
    """(x - mean) / standard deviation, channel by channel."""
    return images.float().sub_(mean[:, None, None]).div_(deviation[:, None, None])


def permuted(labels: Int[Tensor, " n"], generator: torch.Generator) -> Int[Tensor, " n"]:
    """The labels in random order: every class as frequent as before, and nothing to learn but by
    heart.
    """
    return labels[torch.randperm(len(labels), generator=generator).to(labels.device)]


def batches(
    images: UInt8[Tensor, "n channel height width"],
    labels: Int[Tensor, " n"],
    batch_size: int,
    augment: Callable[[Tensor, int], Tensor],
    generator: Callable[[str, int], torch.Generator],
    start: int = 0,
) -> Batches:
    """Minibatches from step `start` on, without end; each epoch is shuffled anew, the incomplete
    batch left out.

    `augment(images, epoch)` changes the images of an epoch, `generator("order", epoch)` shuffles
    it; so batch t is the same whether the training came there in one go or was resumed. Everything
    stays on the device of `images`.
    """
    for epoch, order in shuffled(len(labels), batch_size, generator, start):
        epoch_images = augment(images, epoch)
        for index in order.to(images.device):
            yield epoch_images.index_select(0, index), labels[index]


def shuffled(
    n: int, batch_size: int, generator: Callable[[str, int], torch.Generator], start: int
) -> Iterator[tuple[int, Int[Tensor, "step batch"]]]:
    """Each epoch from step `start` on, without end, and which of n images its batches have."""
    per_epoch = n // batch_size
    if per_epoch == 0:
        raise ValueError(f"batch_size: wanted at most the {n} samples, got {batch_size}")
    for epoch in range(start // per_epoch, 2**62):
        order = torch.randperm(n, generator=generator("order", epoch))
        skipped = max(0, start - epoch * per_epoch)
        yield epoch, order[: per_epoch * batch_size].view(per_epoch, batch_size)[skipped:]
