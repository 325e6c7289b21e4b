"""Make the data set of labelled images that the vision transformers learn."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from safetensors.torch import save

from lib.data.cifar import read_cifar
from lib.data.images import Images, read_digits
from lib.io.command import run
from lib.io.files import InputError, atomic
from lib.io.params import Interval, Seed, read_params


@dataclass(frozen=True)
class Generate:
    source: Literal["digits", "cifar10", "cifar100"]
    n_test: Annotated[int, Interval("[10, 1787]")] | None = None
    seed: Seed | None = None

    def __post_init__(self) -> None:
        given = [value is not None for value in (self.n_test, self.seed)]
        if given != [self.source == "digits"] * 2:
            raise ValueError("wanted n_test and seed for the digits, which have no official split, and for no other")


def main(section: str, official: Path, dataset: Path) -> None:
    params = read_params(section, Generate)
    try:
        images = read(official, params)
    except ValueError as error:
        raise InputError(str(error)) from error
    with atomic(dataset) as part:
        part.write_bytes(save({name: t.contiguous() for name, t in vars(images).items()}))
    print(f"{len(images.train_labels)} training and {len(images.test_labels)} test images")


def read(official: Path, params: Generate) -> Images:
    """The images from the official files."""
    if params.source == "digits":
        assert params.n_test is not None
        assert params.seed is not None
        return read_digits(official, params.n_test, params.seed)
    return Images.from_tensors(read_cifar(official, params.source))


if __name__ == "__main__":
    run(main)
