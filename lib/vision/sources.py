"""Which official images a data set is made of: what a section `data` of params.yaml says."""

from dataclasses import dataclass
from typing import Annotated, Literal

from lib.files.params import Interval, Seed


@dataclass(frozen=True)
class Source:
    """The digits come with scikit-learn and are split here; CIFAR has an official split.

    `source_folder` holds CIFAR's official files or their archive; without it the archive is
    downloaded.
    """

    source: Literal["digits", "cifar10", "cifar100"]
    # Of 1797 digits: so each part has an image of every class.
    n_test: Annotated[int, Interval("[10, 1787]")] | None = None
    seed: Seed | None = None
    source_folder: str | None = None

    def __post_init__(self) -> None:
        of_digits = self.source == "digits"
        if of_digits == (self.n_test is None) or of_digits == (self.seed is None):
            why = "which have no official split, and for no other"
            raise ValueError(f"wanted n_test and seed for the digits, {why}")
        if of_digits and self.source_folder is not None:
            raise ValueError("source_folder: the digits come with scikit-learn, wanted none")
