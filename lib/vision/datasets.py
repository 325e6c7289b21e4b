"""Data sets that a training reads: pixels in memory, or image files that are decoded as it goes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lib.files.files import InputError
from lib.vision.arrow import MANIFEST, PIXELS, Manifest, open_part, read_manifest
from lib.vision.augmentation import Augmentation, randaugment
from lib.vision.images import SCORED, Batches, Images, permuted, read_images
from lib.vision.parts import Block
from lib.vision.streams import scored_batches, stream
from lib.work.compute import available_cores
from lib.work.ranks import n_ranks_here


@dataclass(frozen=True)
class StreamedImages:
    """Image files in a folder of Arrow files, decoded and cropped batch by batch.

    It answers what `Images` answers, and holds no pixels. `n_workers` processes decode, or this one
    where there are none; their number changes no bit.
    """

    folder: Path
    manifest: Manifest
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    n_workers: int = 0

    crops: ClassVar = ("none", "resized_crop_flip")

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.manifest.classes)

    @property
    def n_train(self) -> int:
        """The number of training images."""
        return self.manifest.n_images("train")

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of an image."""
        return (3, self.manifest.size, self.manifest.size)

    def on(self, device: torch.device) -> "StreamedImages":
        """The same images, whose batches come to a device; the cores that a GPU leaves decode."""
        free = available_cores() // n_ranks_here() - 1
        return replace(self, device=device, n_workers=max(0, free) if device.type == "cuda" else 0)

    def statistics(self) -> tuple[Float[Tensor, " channel"], Float[Tensor, " channel"]]:
        """Mean and standard deviation of each channel, as the manifest has them."""
        return torch.tensor(self.manifest.mean), torch.tensor(self.manifest.deviation)

    def feed(
        self,
        draw: Callable[..., torch.Generator],
        batch_size: int,
        how: Augmentation,
        permute: bool,
        start: int,
        block: Block,
    ) -> Batches:
        """The batches as in `Images.feed`; RandAugment draws anew for each part of each batch."""
        labels = torch.from_numpy(open_part(self.folder, self.manifest, "train").labels())
        fed = stream(
            self.folder,
            self.manifest,
            batch_size,
            draw,
            cropped=how.crop == "resized_crop_flip",
            labels=permuted(labels, draw("permuted labels")) if permute else labels,
            start=start,
            own=block.of(batch_size),
            n_workers=self.n_workers,
            device=self.device,
        )
        for step, (x, y) in enumerate(fed, start):
            if how.randaugment is not None:
                parts = zip(x.chunk(len(block.parts)), block.parts, strict=True)
                changed = [
                    randaugment(images, how.randaugment, draw("randaugment", step, part))
                    for images, part in parts
                ]
                x = torch.cat(changed)
            yield x, y

    def tests(self, n_images: int | None = None) -> Batches:
        """The test batches as in `Images.tests`, with the middle square of every picture."""
        every = self.manifest.n_images("test")
        n = every if n_images is None else min(n_images, every)
        how = {"n_workers": self.n_workers, "device": self.device}
        return scored_batches(self.folder, self.manifest, n, SCORED, **how)


Dataset = Images | StreamedImages


def dataset_file(folder: Path) -> Path:
    """The file by whose content a data set is known: its pixels, or the manifest of its files.

    Raises `InputError` where the folder has neither.
    """
    for name in (PIXELS, MANIFEST):
        if (folder / name).is_file():
            return folder / name
    raise InputError(f"{folder}: wanted a data set, with {PIXELS} or {MANIFEST}, got neither")


def read_dataset(file: Path) -> Dataset:
    """Read the data set of such a file; raises `ValueError` where it is broken."""
    if file.name == MANIFEST:
        return StreamedImages(file.parent, read_manifest(file.parent))
    return read_images(file)
