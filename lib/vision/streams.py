"""Encoded images fed to a training from any step on, decoded here or by worker processes.

Which images a batch has, and how each is cropped, are functions of (seed, epoch, index) alone: the
step is all that a training must remember, and the number of workers changes no bit.
"""

import math
import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.reduction import DupFd
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lib.files.files import InputError
from lib.training.devices import keep_freed_memory
from lib.vision.arrow import Manifest, Shards, open_part
from lib.vision.images import shuffled
from lib.vision.pictures import Box, Pixels, centre_square, decoded
from lib.work.errors import StoppedError
from lib.work.signals import end_worker_with_parent

AREAS = (0.08, 1.0)  # that random crops may have, as shares of the image's
RATIOS = (3 / 4, 4 / 3)  # width / height
TRIES = 10
PIECE = 32  # images that a worker decodes at a time: bounds the memory of large batches
AHEAD = 2  # pieces that a worker may decode before they are asked for
CPU = torch.device("cpu")

Place = tuple[int, int]  # epoch, index
Draw = Callable[..., torch.Generator]  # gives the generator of a named purpose
Batch = tuple[UInt8[Tensor, "batch 3 size size"], Int[Tensor, " batch"]]


def random_box(width: int, height: int, numbers: Sequence[float]) -> Box:
    """A box of a random crop, as torchvision's `RandomResizedCrop` has it (Szegedy et al. 2015).

    Its area is uniform in 8..100 % of the image's, its ratio of sides log-uniform in 3/4..4/3. The
    first of ten such boxes that fits is taken, else the largest central one whose ratio is allowed.
    The `numbers`, two for each box and two for its place, are uniform in 0..1.
    """
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


def random_resized_crop(data: bytes, size: int, draw: torch.Generator) -> Pixels:
    """A random crop by `random_box`, half of them mirrored; raises `InputError` for a broken
    image.
    """
    mirrored, *numbers = torch.rand(2 * TRIES + 3, generator=draw, dtype=torch.float64).tolist()
    image = decoded(data, size, partial(random_box, numbers=numbers))
    pixels = np.asarray(image)
    return pixels[:, ::-1] if mirrored < 0.5 else pixels


def places(n: int, batch_size: int, draw: Draw, start: int = 0) -> Iterator[list[Place]]:
    """The (epoch, index) of the images of each batch from step `start` on, without end.

    The order is that of `lib.vision.images.batches`: each epoch is shuffled anew by
    `draw("order", epoch)`, the incomplete batch left out.
    """
    for epoch, order in shuffled(n, batch_size, draw, start):
        for index in order:
            yield [(epoch, i) for i in index.tolist()]


def memory_file() -> BinaryIO:
    """A file without a name, in memory where the system has such: no limit of /dev/shm holds."""
    if sys.platform.startswith("linux"):
        return os.fdopen(os.memfd_create("pixels"), "r+b")
    return TemporaryFile("r+b")


class SharedPixels:
    """Places for the pixels of some pieces, in a file that this process shares with its workers.

    A worker writes a piece into its place, from which a batch is filled: no pixel goes through a
    pipe. /dev/shm, which torch and Python would take, is small in many containers, and a process
    that finds no room there is killed.
    """

    def __init__(self, file: BinaryIO, shape: tuple[int, ...]) -> None:
        self._file = file
        self.places: UInt8[np.ndarray, "place piece 3 size size"]
        file.truncate(math.prod(shape))
        self.places = np.memmap(file, np.uint8, "r+", shape=shape)

    def __reduce__(self) -> tuple[Callable[..., "SharedPixels"], tuple[Any, ...]]:
        return _opened, (DupFd(self._file.fileno()), self.places.shape)


def _opened(file: Any, shape: tuple[int, ...]) -> SharedPixels:
    """The same places in a worker."""
    with os.fdopen(file.detach(), "r+b") as opened:
        return SharedPixels(opened, shape)


@dataclass(frozen=True)
class Pictures(Dataset):
    """The images of a data set as a model sees them: crops that epoch and index decide, where there
    is a `draw`, or the middle.
    """

    shards: Shards
    pixels: SharedPixels
    size: int
    centre: float
    draw: Draw | None = None

    def __getitem__(self, piece: tuple[int, list[Place]]) -> tuple[int, list[int]] | InputError:
        """The images of a piece, written into its place; for a broken one, an error that names it.

        The error is a result, so that it comes in its turn and in its own words, whoever decodes.
        """
        number, places = piece
        try:
            for pixels, place in zip(self.pixels.places[number], places, strict=False):
                pixels[:] = self._picture(*place).transpose(2, 0, 1)
        except InputError as error:
            return error
        return number, [index for _, index in places]

    def _picture(self, epoch: int, index: int) -> Pixels:
        data = self.shards.image(index)
        try:
            if self.draw is None:
                return centre_square(data, self.size, self.centre)
            return random_resized_crop(data, self.size, self.draw("crop", epoch, index))
        except InputError as error:
            raise InputError(f"{self.shards.name(index)}: {error}") from error


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
    batches = (batch[own] for batch in places(len(shards), batch_size, draw, start))
    n_own = len(range(batch_size)[own])
    crop = draw if cropped else None
    return _fed(shards, manifest, crop, labels, batches, n_own, n_workers, device)


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
    labels = torch.from_numpy(shards.labels())
    return _fed(shards, manifest, None, labels, batches, batch_size, n_workers, device)


def _fed(
    shards: Shards,
    manifest: Manifest,
    crop: Draw | None,
    labels: Int[Tensor, " n"],
    batches: Iterator[list[Place]],
    batch_size: int,
    n_workers: int,
    device: torch.device,
) -> Iterator[Batch]:
    """The images of each batch, which are decoded in pieces, and their labels."""
    size = manifest.size
    pieces = (
        batch[first : first + PIECE] for batch in batches for first in range(0, len(batch), PIECE)
    )
    on_gpu = device.type == "cuda"  # which copies by itself from memory that is pinned
    with memory_file() as file:
        pixels = SharedPixels(file, (AHEAD * n_workers + 1, PIECE, 3, size, size))
        pictures = Pictures(shards, pixels, size, manifest.centre, crop)
        decoded = _decoded(pictures, pieces, n_workers)
        while True:
            images = torch.empty(batch_size, 3, size, size, dtype=torch.uint8, pin_memory=on_gpu)
            index: list[int] = []
            for piece, of_piece in islice(decoded, math.ceil(batch_size / PIECE)):
                first = len(index)
                index += of_piece
                images[first : len(index)] = piece
            if not index:
                return
            yield images[: len(index)].to(device, non_blocking=True), labels[index].to(device)


def _decoded(
    pictures: Pictures, pieces: Iterator[list[Place]], n_workers: int
) -> Iterator[tuple[UInt8[Tensor, "piece 3 size size"], list[int]]]:
    """The pixels of each piece, until the next is asked for, and the indices of its images."""
    places = pictures.pixels.places
    free = deque(range(len(places)))
    numbered = ((free.popleft(), piece) for piece in pieces)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", __name__])  # once, and not in each worker
    with (
        warnings.catch_warnings()
    ):  # about more workers than cores, which are for the caller to say
        warnings.simplefilter("ignore")
        loader = DataLoader(
            pictures,
            sampler=numbered,
            batch_size=None,
            num_workers=n_workers,
            multiprocessing_context=context if n_workers else None,
            worker_init_fn=_start_worker,
            prefetch_factor=AHEAD if n_workers else None,
            generator=torch.Generator(),  # else it would draw from torch's own
        )
    try:
        for piece in loader:
            if isinstance(piece, InputError):
                raise piece
            number, index = piece
            yield torch.from_numpy(places[number, : len(index)]), index
            free.append(number)
    except (RuntimeError, ConnectionError, EOFError) as error:
        if isinstance(error, RuntimeError) and "exited unexpectedly" not in str(error):
            raise
        why = str(error) or type(error).__name__
        raise StoppedError(f"a process that decodes images has died ({why}); memory?") from error


def _start_worker(_number: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to say
    end_worker_with_parent()
    keep_freed_memory()
