"""Fetch the official files of a data set: embedded, downloaded, or from a local folder.

Each is compared with its digest. In a folder of one's own, each file is described by its digest.
"""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from lib.files.files import InputError, write_files
from lib.files.inputs import write_sums
from lib.files.tables import write_table
from lib.vision.cifar import OFFICIAL, archive_batches, folder_batches
from lib.vision.digits import digits_file
from lib.vision.folders import described, list_images
from lib.vision.sources import Cifar, Digits, OwnImages, given_folder, read_source
from lib.work.command import OutFolder, run
from lib.work.compute import spread
from lib.work.download import download, mismatch
from lib.work.scratch import Scratch

TOGETHER = 1000  # files whose digests a job takes


def main(section: str, folder: OutFolder) -> None:
    source = read_source(section)
    match source:
        case Digits():
            write_files(folder, {"digits.csv.gz": digits_file().read_bytes()})
            write_sums(folder)
        case Cifar():
            fetch_cifar(source, folder)
        case OwnImages():
            write_table(described_files(source, section), folder / "files.parquet")


def fetch_cifar(source: Cifar, folder: Path) -> None:
    """Write the official files, one after another."""
    given = source.source_folder
    batches = downloaded(source.source) if given is None else local(source.source, given)
    for name, content in batches:
        write_files(folder, {name: content})
        print(f"{folder / name}: {len(content)} bytes, the official file")


def downloaded(source: str) -> Iterator[tuple[str, bytes]]:
    """The files of the archive, which stays in scratch: it comes over the network once."""
    official = OFFICIAL[source]
    with Scratch("downloads", {"sha256": official.sha256}) as scratch:
        archive = scratch.folder / official.archive
        download(official.urls, archive, official.sha256, official.n_bytes)
        yield from archive_batches(archive, source)


def local(source: str, source_folder: str) -> Iterator[tuple[str, bytes]]:
    """The files in a folder that holds the official archive, or what it unpacks to."""
    official = OFFICIAL[source]
    folder = given_folder(source_folder)
    archive = folder / official.archive
    if (folder / official.folder).is_dir():
        yield from folder_batches(folder / official.folder, source)
    elif archive.is_file():
        difference = mismatch(archive, official.sha256, official.n_bytes)
        if difference:
            raise InputError(f"{archive}: wanted the official archive, got {difference}")
        yield from archive_batches(archive, source)
    else:
        wanted = f"wanted a folder that holds {official.folder}/ or {official.archive}"
        raise InputError(f"source_folder: {wanted}, got {folder.absolute()}")


def described_files(source: OwnImages, section: str) -> pd.DataFrame:
    """The image files of a folder of one's own, each read once."""
    root = given_folder(source.source_folder)
    files = list_images(root)
    parts = [files[i : i + TOGETHER] for i in range(0, len(files), TOGETHER)]
    found = spread(described, [(root, part) for part in parts], label=section, unit="part")
    table = pd.concat(found, ignore_index=True)
    print(f"{len(table)} images of {table['class'].nunique()} classes in {root}")
    return table


if __name__ == "__main__":
    run(main)
