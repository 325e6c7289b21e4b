"""Encoded images fed to a training from any step on, decoded here or by worker processes.

Which images a batch has, and how each is cropped, are functions of (seed, epoch, index) alone: the
step is all that a training must remember, and the number of workers changes no bit.
"""

import math
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lib.files.files import InputError
from lib.training.devices import keep_freed_memory
from lib.vision.arrow import Manifest, Shards, open_part
from lib.vision.images import shuffled
from lib.vision.pictures import Box, Pixels, centre_square, decoded
from lib.work.errors import StoppedError
from lib.work.signals import end_worker_with_parent

AREAS = (0.08, 1.0)  # of a random crop, as shares of the image's
RATIOS = (3 / 4, 4 / 3)  # width / height
TRIES = 10
PIECE = 64  # images that a worker decodes at a time: bounds the memory of large batches
CPU = torch.device("cpu")

Place = tuple[int, int]  # epoch, index
Draw = Callable[..., torch.Generator]  # of a named purpose
Batch = tuple[UInt8[Tensor, "batch 3 size size"], Int[Tensor, " batch"]]


def random_box(width: int, height: int, draw: torch.Generator) -> Box:
    """A box of a random crop, as torchvision's `RandomResizedCrop` has it (Szegedy et al. 2015).

    Its area is uniform in 8..100 % of the image's, its ratio of sides log-uniform in 3/4..4/3; of
    ten such boxes the first that fits, else the largest central one whose ratio is allowed.
    """
    numbers = torch.rand(2 * TRIES + 2, generator=draw, dtype=torch.float64).tolist()
    *tries, across, down = numbers
    low, high = map(math.log, RATIOS)
    for share, slant in zip(tries[::2], tries[1::2], strict=True):
        area = width * height * (AREAS[0] + (AREAS[1] - AREAS[0]) * share)
        ratio = math.exp(low + (high - low) * slant)
        columns = round(math.sqrt(area * ratio))
        rows = round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            left = int(across * (width - columns + 1))
            top = int(down * (height - rows + 1))
            return (left, top, left + columns, top + rows)
    columns = min(width, round(height * RATIOS[1]))
    rows = min(height, round(width / RATIOS[0]))
    left = (width - columns) // 2
    top = (height - rows) // 2
    return (left, top, left + columns, top + rows)


def random_resized_crop(data: bytes, size: int, draw: torch.Generator, name: str) -> Pixels:
    """A random crop by `random_box`, half of them mirrored; raises `InputError` for a broken
    image.
    """
    image = decoded(data, size, partial(random_box, draw=draw), name)
    mirrored = torch.rand((), generator=draw).item() < 0.5
    return np.array(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else image)


def places(n: int, batch_size: int, draw: Draw, start: int = 0) -> Iterator[list[Place]]:
    """The (epoch, index) of the images of each batch from step `start` on, without end.

    The order is that of `lib.vision.images.batches`: each epoch is shuffled anew by
    `draw("order", epoch)`, the incomplete batch left out.
    """
    for epoch, order in shuffled(n, batch_size, draw, start):
        for index in order:
            yield [(epoch, i) for i in index.tolist()]


@dataclass(frozen=True)
class Piece:
    """Images and their indices as they come from a worker: arrays, which go through a pipe.

    Tensors would go through shared memory. It takes more time, as the system clears every page of
    it, and containers often have little: a worker that finds none left is killed.
    """

    images: UInt8[np.ndarray | Tensor, "n size size 3"]
    index: Int[np.ndarray, " n"]

    def pin_memory(self) -> "Piece":
        """The same in memory from which a GPU copies by itself; torch's loader calls it."""
        return Piece(torch.as_tensor(self.images).pin_memory(), self.index)


@dataclass(frozen=True)
class Pictures(Dataset):
    """The images of a data set as a model sees them: crops that epoch and index decide, where there
    is a `draw`, or the middle.
    """

    shards: Shards
    size: int
    centre: float
    draw: Draw | None = None

    def __getitem__(self, places: list[Place]) -> "Piece | InputError":
        """The images at these places; for a broken one, an error that names it.

        The error is a result, so that it comes in its turn and in its own words, whoever decodes.
        """
        try:
            images = np.stack([self._picture(*place) for place in places])
            return Piece(images, np.array([index for _, index in places]))
        except InputError as error:
            return error

    def _picture(self, epoch: int, index: int) -> Pixels:
        data, _, name = self.shards.row(index)
        if self.draw is None:
            return centre_square(data, self.size, self.centre, name)
        return random_resized_crop(data, self.size, self.draw("crop", epoch, index), name)


def stream(
    folder: Path,
    manifest: Manifest,
    batch_size: int,
    draw: Draw,
    *,
    cropped: bool,
    labels: Int[Tensor, " n"],
    start: int = 0,
    own: slice = slice(None),
    n_workers: int = 0,
    device: torch.device = CPU,
) -> Iterator[Batch]:
    """Minibatches of the training images of a folder of Arrow files, from a step on, without end.

    Batch t is the same whatever the number of workers (0: decoded here), and wherever the stream
    starts; only the `own` images of a batch are decoded and given. Images are `cropped` at random
    or the middle ones, on `device`. Raises `InputError` that names a broken image, and
    `StoppedError` where a worker has died.
    """
    shards = open_part(folder, manifest, "train")
    pictures = Pictures(shards, manifest.size, manifest.centre, draw if cropped else None)
    batches = (batch[own] for batch in places(len(shards), batch_size, draw, start))
    n_own = len(range(batch_size)[own])
    return _fed(pictures, labels, batches, n_own, n_workers, device)


def scored_batches(
    folder: Path,
    manifest: Manifest,
    n_images: int,
    batch_size: int,
    *,
    n_workers: int = 0,
    device: torch.device = CPU,
) -> Iterator[Batch]:
    """The middle of the first test images, with their labels; the last batch may be smaller.

    Errors are as in `stream`.
    """
    shards = open_part(folder, manifest, "test")
    batches = (
        [(0, index) for index in range(first, min(first + batch_size, n_images))]
        for first in range(0, n_images, batch_size)
    )
    pictures = Pictures(shards, manifest.size, manifest.centre)
    labels = torch.from_numpy(shards.labels())
    return _fed(pictures, labels, batches, batch_size, n_workers, device)


def _fed(
    pictures: Pictures,
    labels: Int[Tensor, " n"],
    batches: Iterator[list[Place]],
    batch_size: int,
    n_workers: int,
    device: torch.device,
) -> Iterator[Batch]:
    """The images of each batch, which are decoded in pieces, and their labels."""
    pieces = (
        batch[first : first + PIECE] for batch in batches for first in range(0, len(batch), PIECE)
    )
    decoded = _decoded(pictures, pieces, n_workers, device)
    while found := list(islice(decoded, math.ceil(batch_size / PIECE))):
        images = torch.cat([piece.to(device, non_blocking=True) for piece, _ in found])
        index = torch.cat([index for _, index in found])
        yield images.permute(0, 3, 1, 2).contiguous(), labels[index].to(device)


def _decoded(
    pictures: Pictures, pieces: Iterable[list[Place]], n_workers: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", __name__])  # once, and not in each worker
    with warnings.catch_warnings():  # of more workers than cores, which are for the caller to say
        warnings.simplefilter("ignore")
        loader = DataLoader(
            pictures,
            sampler=pieces,
            batch_size=None,
            num_workers=n_workers,
            multiprocessing_context=context if n_workers else None,
            worker_init_fn=_start_worker,
            pin_memory=device.type == "cuda",
            generator=torch.Generator(),  # else it would draw from torch's own
        )
    try:
        for piece in loader:
            if isinstance(piece, InputError):
                raise piece
            yield torch.as_tensor(piece.images), torch.as_tensor(piece.index)
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and "exited unexpectedly" not in str(error):
            raise
        why = str(error) or type(error).__name__
        raise StoppedError(f"a process that decodes images has died ({why}); memory?") from error


def _start_worker(_number: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to say
    end_worker_with_parent()
    keep_freed_memory()
