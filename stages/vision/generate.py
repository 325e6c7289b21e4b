"""Make the data set of labelled images that the vision transformers learn.

Images that fit into memory become one file of pixels. Where there are more, the files' own bytes
are put into Arrow files, from which a training decodes them batch by batch.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Int64, UInt8
from safetensors.numpy import save

from lib.files.files import InputError, atomic, clear, sha256
from lib.files.inputs import read_json, with_digest
from lib.files.memory import check_disk, check_memory
from lib.files.tables import read_table, write_json
from lib.vision.arrow import (
    MANIFEST,
    PIXELS,
    Manifest,
    Shard,
    described,
    write_manifest,
    write_shard,
)
from lib.vision.cifar import read_cifar
from lib.vision.digits import read_digits
from lib.vision.folders import COLUMNS, read_file, split
from lib.vision.pictures import Pixels, centre_square, channel_counts, channel_moments
from lib.vision.sources import Cifar, Digits, OwnImages, given_folder, read_source
from lib.work.cells import Cell, key_of
from lib.work.command import OutFolder, run
from lib.work.compute import spread

TOGETHER = 500  # images that a job decodes
SHARD = 1 << 28  # bytes of images in an Arrow file, about
N_FOR_STATISTICS = 10_000  # training images whose channels are averaged


def main(section: str, official: Path, dataset: OutFolder) -> None:
    source = read_source(section)
    match source:
        case Digits():
            write_pixels(dataset, read_digits(official, source.n_test, source.seed))
        case Cifar():
            write_pixels(
                dataset, read_cifar(official, source.source, coarse=source.labels == "coarse")
            )
        case OwnImages():
            table = read_table(official / "files.parquet", COLUMNS)
            parts = split(table, source.test_share, source.seed)
            if source.kept == "pixels":
                write_pixels(dataset, own_pixels(source, parts, section))
            else:
                write_jpegs(dataset, source, official, parts, section)


def write_pixels(dataset: Path, images: dict[str, np.ndarray]) -> None:
    """Write the images as one file."""
    clear(dataset, PIXELS)
    with atomic(dataset / PIXELS) as part:
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


def write_jpegs(
    dataset: Path,
    source: OwnImages,
    official: Path,
    parts: dict[str, pd.DataFrame],
    section: str,
) -> None:
    """Write the files' bytes as Arrow files, then the manifest; finished files wait in scratch."""
    shards = {
        f"{part}-{number:05d}.arrow": group
        for part, files in parts.items()
        for number, (_, group) in enumerate(files.groupby(files["bytes"].cumsum() // SHARD))
    }
    n_bytes = sum(int(files["bytes"].sum()) for files in parts.values())
    print(f"{n_bytes / 1e9:.3g} GB of images; DVC's cache may hold them a second time", flush=True)
    check_disk(dataset, n_bytes, "the Arrow files")
    with Cell("vision_generate", key_of(kept_shard, source, official)) as cell:
        jobs = [(source, cell.folder / name, group) for name, group in shards.items()]
        records = list(spread(kept_shard, jobs, label=f"{section}, Arrow files", unit="file"))
        statistics = statistics_of(source, parts["train"], section)
        clear(dataset, "*.arrow", MANIFEST)
        dataset.mkdir(parents=True, exist_ok=True)
        for name in shards:
            shutil.move(cell.folder / name, dataset / name)
    manifest = Manifest(
        classes=sorted(parts["train"]["class"].unique()),
        files={part: shards_of(part, records) for part in parts},
        skipped=[name for record in records for name in record["broken"]],
        size=source.size,
        centre=source.centre,
        **statistics,
    )
    write_manifest(dataset, manifest)
    say_broken(manifest.skipped)
    print(f"{manifest.n_images('train')} training and {manifest.n_images('test')} test images")


def shards_of(part: str, records: Sequence[dict[str, Any]]) -> list[Shard]:
    """The Arrow files of a part as the manifest lists them."""
    found = [Shard(**record["shard"]) for record in records]
    return [shard for shard in found if shard.name.startswith(f"{part}-")]


def kept_shard(source: OwnImages, path: Path, files: pd.DataFrame) -> dict[str, Any]:
    """Write some files as an Arrow file, where it is not there: its record, and what is broken."""
    beside = path.with_suffix(".json")
    if path.is_file() and beside.is_file():
        record = read_json(beside)
        if record["shard"]["sha256"] == sha256(path):
            return record
    broken: list[str] = []
    images = whole(source, files, broken)
    write_shard(path, ((image.data, image.label, image.name) for image in images))
    record = {"shard": asdict(described(path)), "broken": broken}
    write_json(record, beside)
    return record


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


if __name__ == "__main__":
    run(main)
