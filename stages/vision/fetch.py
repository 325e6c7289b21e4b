"""Fetch the official files of a data set: embedded, downloaded or from a local folder, compared with their digests."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from lib.data.cifar import OFFICIAL, archive_batches, folder_batches
from lib.data.images import digits_file
from lib.io.command import run
from lib.io.download import download, mismatch
from lib.io.files import InputError, atomic
from lib.io.params import Interval, read_params
from lib.io.scratch import Scratch


@dataclass(frozen=True)
class Fetch:
    source: Literal["digits", "cifar10", "cifar100"]
    urls: tuple[str, ...] = ()
    sha256: str = ""
    size: Annotated[int, Interval("[1, 1e15]")] | None = None
    source_folder: str | None = None

    def __post_init__(self) -> None:
        if self.source == "digits":
            if self.urls or self.sha256 or self.size or self.source_folder:
                raise ValueError("source: the digits come with scikit-learn, wanted no other key")
            return
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"sha256: wanted 64 hexadecimal digits, got {self.sha256!r}")
        if self.size is None:
            raise ValueError("size: wanted the archive's size in bytes, got none")
        if not self.urls and self.source_folder is None:
            raise ValueError("wanted at least one of urls, or a source_folder, got neither")


def main(section: str, folder: Path) -> None:
    params = read_params(section, Fetch)
    if params.source == "digits":
        with atomic(folder / "digits.csv.gz") as part:
            part.write_bytes(digits_file())
        return
    batches = downloaded(params) if params.source_folder is None else local(params)
    try:
        for name, content in batches:
            with atomic(folder / name) as part:
                part.write_bytes(content)
            print(f"{folder / name}: {len(content)} bytes, the official file")
    except ValueError as error:  # a file that is not the official one
        raise InputError(str(error)) from error


def downloaded(params: Fetch) -> Iterator[tuple[str, bytes]]:
    """The files of the archive, which stays in scratch, so that it comes over the network once."""
    assert params.size is not None
    with Scratch("downloads", {"sha256": params.sha256}) as scratch:
        archive = scratch.folder / OFFICIAL[params.source].archive
        download(params.urls, archive, params.sha256, params.size)
        yield from archive_batches(archive, params.source)


def local(params: Fetch) -> Iterator[tuple[str, bytes]]:
    """The files in a folder that holds the official archive, or what it unpacks to."""
    official = OFFICIAL[params.source]
    folder = Path(os.environ.get("DVC_ROOT", "."), Path(params.source_folder or "").expanduser())
    archive = folder / official.archive
    if (folder / official.folder).is_dir():
        yield from folder_batches(folder / official.folder, params.source)
    elif archive.is_file():
        assert params.size is not None
        difference = mismatch(archive, params.sha256, params.size)
        if difference:
            raise InputError(f"{archive}: wanted the official archive, got {difference}")
        yield from archive_batches(archive, params.source)
    else:
        raise InputError(
            f"source_folder: wanted a folder that holds {official.folder}/ or {official.archive}, "
            f"got {folder.absolute()}"
        )


if __name__ == "__main__":
    run(main)
