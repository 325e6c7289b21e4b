"""Which official images a data set is made of, and how they are split: what a section `data` of
params.yaml says.
"""

from dataclasses import dataclass
from typing import Literal

N_TEST = range(10, 1788)  # of the 1797 digits: at least one image of each class in each part


@dataclass(frozen=True)
class Source:
    """The digits come with scikit-learn and have no official split; CIFAR has one.

    `source_folder` holds CIFAR's official files or their archive; without it the archive is
    downloaded.
    """

    source: Literal["digits", "cifar10", "cifar100"]
    n_test: int | None = None
    seed: int | None = None
    source_folder: str | None = None

    def __post_init__(self) -> None:
        given = [value is not None for value in (self.n_test, self.seed)]
        if given != [self.source == "digits"] * 2:
            raise ValueError(
                "wanted n_test and seed for the digits, which have no official split, and for no "
                "other"
            )
        if self.source == "digits" and self.source_folder is not None:
            raise ValueError("source_folder: the digits come with scikit-learn, wanted none")
        if self.n_test is not None and self.n_test not in N_TEST:
            raise ValueError(
                f"n_test: wanted a number in [{N_TEST[0]}, {N_TEST[-1]}], got {self.n_test}"
            )
        if self.seed is not None and self.seed not in range(2**32):
            raise ValueError(f"seed: wanted a number in [0, 4294967295], got {self.seed}")
