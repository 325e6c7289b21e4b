"""Make the data set of labelled images that the vision transformers learn."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from safetensors.torch import save

from lib.data.images import digits
from lib.io.command import run
from lib.io.files import atomic
from lib.io.params import Interval, Seed, read_params


@dataclass(frozen=True)
class Generate:
    source: Literal["digits"]
    n_test: Annotated[int, Interval("[10, 1787]")]
    seed: Seed


def main(section: str, dataset: Path) -> None:
    params = read_params(section, Generate)
    images = digits(params.n_test, params.seed)
    with atomic(dataset) as part:
        part.write_bytes(save({name: t.contiguous() for name, t in vars(images).items()}))
    print(f"{len(images.train_labels)} training and {len(images.test_labels)} test images")


if __name__ == "__main__":
    run(main)
