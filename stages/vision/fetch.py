"""Fetch the official files of a data set: embedded, downloaded, or from a local folder.

Each is compared with its digest.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from lib.files.files import InputError, write_files
from lib.files.inputs import write_sums
from lib.files.params import read_params
from lib.vision.cifar import OFFICIAL, archive_batches, folder_batches
from lib.vision.digits import digits_file
from lib.vision.sources import Source
from lib.work.command import OutFolder, run
from lib.work.download import download, mismatch
from lib.work.scratch import Scratch


def main(section: str, folder: OutFolder) -> None:
    params = read_params(section, Source)
    if params.source == "digits":
        write_files(folder, {"digits.csv.gz": digits_file().read_bytes()})
        write_sums(folder)
        return
    given = params.source_folder
    batches = downloaded(params.source) if given is None else local(params.source, given)
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
    folder = Path(os.environ.get("DVC_ROOT", "."), Path(source_folder).expanduser())
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


if __name__ == "__main__":
    run(main)
