"""Make the data set of labelled images that the vision transformers learn."""

from pathlib import Path

import numpy as np
from safetensors.numpy import save

from lib.files.files import InputError, atomic
from lib.files.inputs import with_digest
from lib.files.memory import COPIES, check_disk
from lib.files.params import read_params
from lib.vision.cifar import cifar_shape, read_cifar
from lib.vision.digits import digits_shape, read_digits
from lib.vision.sources import Source
from lib.work.command import OutFile, run


def main(section: str, official: Path, dataset: OutFile) -> None:
    params = read_params(section, Source)
    check_disk(dataset, COPIES * (size_of(params) + 1000), section)
    try:
        images = read(official, params)
    except ValueError as error:
        raise InputError(str(error)) from error
    with atomic(dataset) as part:
        part.write_bytes(with_digest(save(images)))
    print(f"{len(images['train_labels'])} training and {len(images['test_labels'])} test images")


def size_of(params: Source) -> int:
    """The bytes of a data set, as what was published has them: its images in uint8, and their
    labels in int64.
    """
    n_images, n_values = digits_shape() if params.source == "digits" else cifar_shape(params.source)
    return n_images * (n_values + 8)


def read(official: Path, params: Source) -> dict[str, np.ndarray]:
    """The images and labels of both parts from the official files."""
    if params.n_test is None or params.seed is None:
        return read_cifar(official, params.source)
    return read_digits(official, params.n_test, params.seed)


if __name__ == "__main__":
    run(main)
