"""Data sets of pixels, and the middle squares of image files of which they are made."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int64, UInt8
from safetensors.numpy import save

from lib.files.files import InputError, atomic, clear
from lib.files.inputs import with_digest
from lib.files.memory import check_memory
from lib.vision.arrow import PIXELS
from lib.vision.folders import read_file
from lib.vision.pictures import Pixels, centre_square, channel_counts, channel_moments
from lib.vision.sources import OwnImages, given_folder
from lib.work.compute import spread

TOGETHER = 500  # images that a job decodes
N_FOR_STATISTICS = 10_000  # training images whose channels are averaged


def write_pixels(folder: Path, images: dict[str, np.ndarray]) -> None:
    """Write the images of a data set as one file into a folder."""
    clear(folder, PIXELS)
    with atomic(folder / PIXELS) as part:
        part.write_bytes(with_digest(save(images)))
    print(f"{len(images['train_labels'])} training and {len(images['test_labels'])} test images")


class Squares(NamedTuple):
    """Decoded images of one size, their labels, and the names of those that are broken."""

    images: UInt8[np.ndarray, "n 3 size size"]
    labels: Int64[np.ndarray, " n"]
    broken: list[str]


def own_pixels(
    source: OwnImages, parts: dict[str, pd.DataFrame], section: str
) -> dict[str, np.ndarray]:
    """The middle square of every image of a folder, in colours."""
    n = sum(map(len, parts.values()))
    check_memory("the pixels of all images", 3 * n * 3 * source.size**2)
    arrays = {}
    for part, files in parts.items():
        jobs = [(source, files[i : i + TOGETHER]) for i in range(0, len(files), TOGETHER)]
        found = list(spread(squares, jobs, label=f"{section}, {part}", unit="part"))
        arrays[f"{part}_images"] = np.concatenate([one.images for one in found])
        arrays[f"{part}_labels"] = np.concatenate([one.labels for one in found])
        say_broken([name for one in found for name in one.broken])
    return arrays


def squares(source: OwnImages, files: pd.DataFrame) -> Squares:
    """The middle squares of some files."""
    images, labels, broken = [], [], []
    for image in whole(source, files, broken):
        images.append(image.square.transpose(2, 0, 1))
        labels.append(image.label)
    shape = (len(images), 3, source.size, source.size)
    return Squares(np.array(images, np.uint8).reshape(shape), np.array(labels, np.int64), broken)


class Whole(NamedTuple):
    """An image file that is whole: its bytes, and its middle square."""

    name: str
    label: int
    data: bytes
    square: Pixels


def whole(source: OwnImages, files: pd.DataFrame, broken: list[str]) -> Iterator[Whole]:
    """The files that are whole; the names of others are added to `broken`, where they may be left
    out.
    """
    root = given_folder(source.source_folder)
    for name, digest, label in zip(files["name"], files["sha256"], files["label"], strict=True):
        data = read_file(root, name, digest)
        try:
            square = centre_square(data, source.size, source.centre)
        except InputError as error:
            if source.broken == "refuse":
                said = f"{name}: {error} (`broken: skip` leaves it out)"
                raise InputError(said) from error
            broken.append(name)
        else:
            yield Whole(name, label, data, square)


def say_broken(names: Sequence[str]) -> None:
    """Name the images that are left out."""
    if names:
        print(f"{len(names)} broken images are left out: {', '.join(names[:9])}")


def statistics_of(source: OwnImages, files: pd.DataFrame, section: str) -> dict[str, list[float]]:
    """Mean and deviation of each channel over the middle squares of training images.

    Either all images count, or `N_FOR_STATISTICS` that are evenly spaced.
    """
    places = np.linspace(0, len(files) - 1, min(len(files), N_FOR_STATISTICS)).round().astype(int)
    chosen = files.iloc[places]
    jobs = [(source, chosen[i : i + TOGETHER]) for i in range(0, len(chosen), TOGETHER)]
    found = spread(histograms, jobs, label=f"{section}, channels", unit="part")
    mean, deviation = channel_moments(np.sum(list(found), axis=0))
    return {"mean": mean.tolist(), "deviation": deviation.tolist()}


def histograms(source: OwnImages, files: pd.DataFrame) -> Int64[np.ndarray, "3 256"]:
    """How often each channel has each value in the middle squares of some files."""
    return channel_counts(squares(source, files).images)
