"""CIFAR's official files, out of the archive that is downloaded, or from a folder that has them."""

from collections.abc import Iterator

from lib.files.files import InputError
from lib.vision.cifar import OFFICIAL, archive_batches, folder_batches
from lib.vision.sources import Cifar, given_folder
from lib.work.download import download, mismatch
from lib.work.scratch import Scratch


def official_files(source: Cifar) -> Iterator[tuple[str, bytes]]:
    """Each official file by its name; raises `InputError` where one is missing or another."""
    given = source.source_folder
    return downloaded(source.source) if given is None else local(source.source, given)


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
