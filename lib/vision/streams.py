"""Encoded images fed to a training from any step on, decoded here or by worker processes.

Which images a batch has, and how each is cropped, are functions of (seed, epoch, index) alone: the
step is all that a training must remember, and the number of workers changes no bit.
"""

import io
import math
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from struct import error as struct_error

import numpy as np
import PIL
import torch
from jaxtyping import Int, UInt8
from PIL import Image, features
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lib.files.files import InputError
from lib.training.devices import generator, keep_freed_memory
from lib.vision.arrow import Shards, open_part, read_manifest
from lib.work.errors import StoppedError
from lib.work.signals import end_worker_with_parent

AREAS = (0.08, 1.0)  # of a random crop, as shares of the image's
RATIOS = (3 / 4, 4 / 3)  # width / height
TRIES = 10
MARGIN = 256 / 224  # of the short side to a centre crop's
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
PIECE = 64  # images that a worker decodes at a time: bounds the memory of large batches
CPU = torch.device("cpu")

Box = tuple[float, float, float, float]  # left, top, right, bottom
Place = tuple[int, int]  # epoch, index
Batch = tuple[UInt8[Tensor, "batch 3 size size"], Int[Tensor, " batch"]]

BROKEN = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    EOFError,
    IndexError,
    struct_error,
    Image.DecompressionBombError,
)


def decoders() -> dict[str, str]:
    """The versions of what decodes: another may give other pixels."""
    jpeg = "libjpeg_turbo" if features.check_feature("libjpeg_turbo") else "jpg"
    return {"pillow": PIL.__version__, "libjpeg": f"{jpeg} {features.version(jpeg)}"}


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


def centre_box(width: int, height: int, size: int) -> Box:
    """The square of `size` pixels in the middle once the short side has 256/224 times as many.

    An image that has `size` × `size` pixels is taken whole.
    """
    if width == height == size:
        return (0, 0, width, height)
    side = min(width, height) / MARGIN
    left = (width - side) / 2
    top = (height - side) / 2
    return (left, top, left + side, top + side)


def decoded(data: bytes, size: int, choose: Callable[[int, int], Box], name: str) -> Image.Image:
    """What stands in a box of an encoded image, in RGB and `size` × `size` pixels.

    `choose(width, height)` gives the box. It is resized bilinearly, with antialiasing; a JPEG whose
    box is at least twice as large as wanted is decoded at a half, a quarter or an eighth of its
    size. An orientation that the file notes is ignored, as is usual for ImageNet. Raises
    `InputError`, with the name, where the data are no whole image.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            box = choose(*image.size)
            larger = int(min(box[2] - box[0], box[3] - box[1]) / size)
            if larger > 1:
                box = _drafted(image, larger, box)
            return _rgb(image).resize((size, size), Image.Resampling.BILINEAR, box)
    except BROKEN as error:
        raise InputError(f"{name}: wanted a whole image, got: {error}") from error


def _drafted(image: Image.Image, larger: int, box: Box) -> Box:
    """Have an image decoded at a part of its size; the box there."""
    width, height = image.size
    draft = image.draft(None, (width // larger, height // larger))
    if draft is None:
        return box
    scale = width / draft[1][2]
    left, top, right, bottom = (side / scale for side in box)
    return (left, top, right, bottom)


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        return image
    if image.mode == "P":  # its transparency, if any, is said in a way that RGB would warn of
        image = image.convert("RGBA")
    return image.convert("RGB")


def centre_crop(data: bytes, size: int, name: str) -> UInt8[np.ndarray, "size size 3"]:
    """The middle of an encoded image, by `centre_box`; raises `InputError` for a broken one."""
    return np.array(decoded(data, size, partial(centre_box, size=size), name))


def random_resized_crop(
    data: bytes, size: int, draw: torch.Generator, name: str
) -> UInt8[np.ndarray, "size size 3"]:
    """A random crop by `random_box`, half of them mirrored; raises `InputError` for a broken
    image.
    """
    image = decoded(data, size, partial(random_box, draw=draw), name)
    mirrored = torch.rand((), generator=draw).item() < 0.5
    return np.array(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else image)


def places(n: int, batch_size: int, seed: int, start: int = 0) -> Iterator[list[Place]]:
    """The (epoch, index) of the images of each batch from step `start` on, without end.

    The order is that of `lib.vision.images.batches`: each epoch is shuffled anew, the incomplete
    batch left out.
    """
    per_epoch = n // batch_size
    if per_epoch == 0:
        raise ValueError(f"batch_size: wanted at most the {n} samples, got {batch_size}")
    for epoch in range(start // per_epoch, 2**62):
        order = torch.randperm(n, generator=generator(seed, "order", epoch))
        skipped = max(0, start - epoch * per_epoch)
        for index in order[: per_epoch * batch_size].view(per_epoch, batch_size)[skipped:]:
            yield [(epoch, i) for i in index.tolist()]


@dataclass(frozen=True)
class Piece:
    """Images and their indices as they come from a worker: arrays, which go through a pipe.

    Tensors would go through shared memory. It takes more time, as the system clears every page of
    it, and containers often have little: a worker that finds none left is killed.
    """

    images: UInt8[np.ndarray | Tensor, "n size size 3"]
    index: Int[np.ndarray | Tensor, " n"]

    def pin_memory(self) -> "Piece":
        """The same in memory from which a GPU copies by itself; torch's loader calls it."""
        pinned = torch.as_tensor(self.images).pin_memory()
        return Piece(pinned, self.index)


@dataclass(frozen=True)
class Pictures(Dataset):
    """The images of a data set as a model sees them: crops that epoch and index decide, or the
    middle.
    """

    shards: Shards
    classes: list[str]
    size: int
    seed: int = 0
    cropped: bool = False

    def __getitem__(self, piece: list[Place]) -> "Piece | InputError":
        """The images at these places; for a broken one, an error that names it.

        The error is a result, so that it comes in its turn and in its own words, whoever decodes.
        """
        try:
            rows = [self.shards.row(index) for _, index in piece]
            pictures = [self._picture(*at, *row) for at, row in zip(piece, rows, strict=True)]
            return Piece(np.stack(pictures), np.array([index for _, index in piece]))
        except InputError as error:
            return error

    def _picture(
        self, epoch: int, index: int, data: bytes, label: int, file: str
    ) -> UInt8[np.ndarray, "size size 3"]:
        name = f"{self.classes[label]}/{file}"
        if not self.cropped:
            return centre_crop(data, self.size, name)
        draw = generator(self.seed, "crop", epoch, index)
        return random_resized_crop(data, self.size, draw, name)


def stream(
    folder: Path,
    part: str,
    batch_size: int,
    seed: int,
    *,
    cropped: bool,
    labels: Int[Tensor, " n"] | None = None,
    start: int = 0,
    rank: int = 0,
    world: int = 1,
    n_workers: int = 0,
    device: torch.device = CPU,
) -> Iterator[Batch]:
    """Minibatches of a folder of Arrow files from step `start` on, without end.

    Batch t is the same whatever the number of workers (0: decoded here), and wherever the stream
    starts. Process `rank` of `world` decodes and gets only its slice of each batch. Images are
    `cropped` at random, or whole (`centre_box`); `labels` stand for those of the files. Images are
    channels-first, a view of channels-last, on `device`. Raises `InputError` that names a broken
    image, and `StoppedError` where a worker has died.
    """
    if batch_size % world or not 0 <= rank < world:
        raise ValueError(
            f"batch_size: wanted a multiple of the {world} processes, and a rank among them, got "
            f"{batch_size} and rank {rank}"
        )
    pictures, own_labels = _opened(folder, part, seed, cropped)
    own = slice(rank * batch_size // world, (rank + 1) * batch_size // world)
    slices = (batch[own] for batch in places(len(own_labels), batch_size, seed, start))
    labels = own_labels if labels is None else labels
    return _fed(pictures, labels, slices, batch_size // world, n_workers, device)


def scored_batches(
    folder: Path, part: str, batch_size: int, *, n_workers: int = 0, device: torch.device = CPU
) -> Iterator[Batch]:
    """The middle of every image, with its label, in order; the last batch may be smaller.

    Images and errors are as in `stream`.
    """
    pictures, labels = _opened(folder, part)
    batches = (
        [(0, index) for index in range(first, min(first + batch_size, len(labels)))]
        for first in range(0, len(labels), batch_size)
    )
    return _fed(pictures, labels, batches, batch_size, n_workers, device)


def _opened(
    folder: Path, part: str, seed: int = 0, cropped: bool = False
) -> tuple[Pictures, Int[Tensor, " n"]]:
    manifest = read_manifest(folder)
    shards = open_part(folder, manifest, part)
    return Pictures(shards, manifest.classes, manifest.size, seed, cropped), shards.labels()


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
        yield images.permute(0, 3, 1, 2), labels[index].to(device)


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
