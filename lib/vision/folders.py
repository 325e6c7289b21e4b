"""Folders of image files, a folder for each class: which files there are, and which of them test.

Two layouts are known: class folders side by side, or class folders in `train` and in `val` (or
`test`), as ImageNet's images are laid out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from lib.files.files import InputError, sha256
from lib.vision.sources import given_folder
from lib.vision.tables.fetched import FILES
from lib.work.compute import spread

SUFFIXES = frozenset(
    [
        *(".apng", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pfm", ".pgm"),
        *(".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp"),
    ]
)
TOGETHER = 1000  # files whose digests a job takes


class ImageFile(NamedTuple):
    """A file of a class; `part` is train or test, or all where the folder has no parts."""

    part: str
    label: str
    name: str


def list_images(root: Path) -> list[ImageFile]:
    """All image files by part, class and name, sorted; names count from `root`.

    Hidden files and files that are no images by their names are passed over. Raises `InputError`
    where the folder is none, or has fewer than two classes, a class without images, a test class
    that has no training images, a folder in a class, a link that leaves the folder, or a name that
    is not of printable characters.
    """
    if not root.is_dir():
        raise InputError(f"source_folder: wanted a folder of class folders, got {root.absolute()}")
    parts = _parts(root)
    files = [
        ImageFile(part, folder.name, path.relative_to(root).as_posix())
        for part, place in parts.items()
        for folder in _inside(place, root)
        if folder.is_dir()
        for path in _images_of(folder, root)
    ]
    known = {part: {file.label for file in files if file.part == part} for part in parts}
    learned = known.get("train", known.get("all", set()))
    if len(learned) < 2:
        wanted = "wanted two class folders with images, or more"
        raise InputError(f"source_folder: {wanted}, got {sorted(learned)} in {root.absolute()}")
    unknown = sorted(known.get("test", set()) - learned)
    if unknown:
        raise InputError(f"{root}: wanted training images of every class, got none of {unknown}")
    return files


def _parts(root: Path) -> dict[str, Path]:
    """The folders of class folders by part."""
    test = next((root / name for name in ("val", "test") if (root / name).is_dir()), None)
    if test is None or not (root / "train").is_dir():
        return {"all": root}
    return {"train": root / "train", "test": test}


def _inside(folder: Path, root: Path) -> list[Path]:
    """What lies in a folder, sorted by name, without what is hidden."""
    found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    for path in found:
        if not path.name.isprintable():
            raise InputError(f"{folder}: wanted names of printable characters, got {path.name!r}")
        if not path.resolve().is_relative_to(root.resolve()):
            raise InputError(f"{path}: wanted files of {root}, got a link to {path.resolve()}")
    return found


def _images_of(folder: Path, root: Path) -> list[Path]:
    """The image files of a class."""
    inside = _inside(folder, root)
    for path in inside:
        if path.is_dir():
            raise InputError(f"{folder}: wanted the image files of a class, got the folder {path}")
    found = [path for path in inside if path.suffix.lower() in SUFFIXES]
    if not found:
        known = " ".join(sorted(SUFFIXES))
        raise InputError(f"{folder}: wanted image files ({known}) of a class, got none")
    return found


def listed(source_folder: str, label: str) -> pd.DataFrame:
    """The image files of a folder of one's own, each read once; `label` names the work."""
    root = given_folder(source_folder)
    files = list_images(root)
    parts = [files[i : i + TOGETHER] for i in range(0, len(files), TOGETHER)]
    found = spread(described, [(root, part) for part in parts], label=label, unit="part")
    table = pd.concat(found, ignore_index=True)
    print(f"{len(table)} images of {table['class'].nunique()} classes in {root}")
    return table


def described(root: Path, files: Sequence[ImageFile]) -> pd.DataFrame:
    """The files with their bytes and digests, each read once."""
    rows = []
    for file in files:
        path = root / file.name
        rows.append((*file, path.stat().st_size, sha256(path)))
    return FILES.frame(rows)


def read_file(root: Path, name: str, digest: str) -> bytes:
    """The bytes of a file of the table; raises `InputError` where they are not those described."""
    path = root / name
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: wanted the image that was fetched, got: {error}") from error
    if sha256(data) != digest:
        again = "fetch again: `dvc repro -f -s vision_fetch@DATASET`"
        raise InputError(f"{path}: wanted the image that was fetched, got another; {again}")
    return data


def split(files: pd.DataFrame, test_share: float, seed: int) -> dict[str, pd.DataFrame]:
    """The files of `train` and `test`: the folder's own parts, or a share of every class.

    Their `label` is the number of their class among all classes, sorted by name.

    Where a class has no parts, round(test_share · n) of its files, and at least one, are drawn to
    be test images; at least one stays to be learned. Raises `InputError` for a class of one image.
    """
    classes = sorted(files["class"].unique())
    files = files.assign(label=files["class"].map(classes.index))
    if (files["part"] != "all").all():
        return {part: files[files["part"] == part] for part in ("train", "test")}
    is_test = pd.Series(False, files.index)
    for number, (label, group) in enumerate(files.groupby("class", sort=True)):
        n = len(group)
        if n < 2:
            raise InputError(f"{label}: wanted two images of a class, or more, got {n}")
        n_test = min(max(round(test_share * n), 1), n - 1)
        draw = np.random.default_rng([seed, number])
        is_test[group.index[draw.permutation(n)[:n_test]]] = True
    return {"train": files[~is_test], "test": files[is_test]}
