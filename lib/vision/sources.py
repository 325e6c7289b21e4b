"""What a data set is made of: what a section `data` of params.yaml says."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from lib.files.params import Interval, Seed, read_params


@dataclass(frozen=True)
class Digits:
    """The digits that come with scikit-learn; they have no official split and are split here."""

    source: Literal["digits"]
    # Each part of the 1797 digits then has an image of every class.
    n_test: Annotated[int, Interval("[10, 1787]")]
    seed: Seed


@dataclass(frozen=True)
class Cifar:
    """CIFAR's official files, downloaded or from the folder that holds them or their archive.

    CIFAR-100 has a hundred classes, its `fine` labels, in twenty groups, its `coarse` ones.
    """

    source: Literal["cifar10", "cifar100"]
    source_folder: str | None = None
    labels: Literal["fine", "coarse"] = "fine"

    def __post_init__(self) -> None:
        if self.labels == "coarse" and self.source != "cifar100":
            raise ValueError(f"labels: wanted fine, the only ones of {self.source}, got coarse")


@dataclass(frozen=True)
class OwnImages:
    """A folder of image files, a folder for each class: all together, or in `train` and `val`.

    Kept as `pixels`, squares of `size` pixels that fit into memory, or as the `jpegs` themselves,
    which are decoded and cropped to that size anew for every batch. A square is the middle of a
    picture, of `centre` times its shorter side. Where the folder has no parts
    of its own, `test_share` of every class, drawn from the seed, are test images.
    """

    source: Literal["folder"]
    source_folder: str
    kept: Literal["pixels", "jpegs"]
    size: Annotated[int, Interval("[4, 1024]")]
    centre: Annotated[float, Interval("(0, 1]")]
    broken: Literal["refuse", "skip"]
    test_share: Annotated[float, Interval("(0, 1)")]
    seed: Seed


@dataclass(frozen=True)
class _Named:
    source: Literal["digits", "cifar10", "cifar100", "folder"]


KINDS = {"digits": Digits, "cifar10": Cifar, "cifar100": Cifar, "folder": OwnImages}


def read_source(section: str) -> Digits | Cifar | OwnImages:
    """The source that a section of params.yaml names; raises `InputError` for other keys."""
    named = read_params(section, _Named, part=True)
    return read_params(section, KINDS[named.source])


def given_folder(text: str) -> Path:
    """The folder that a `source_folder` names, counted from the project's root."""
    return Path(os.environ.get("DVC_ROOT", "."), Path(text).expanduser())
