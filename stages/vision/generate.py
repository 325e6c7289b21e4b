"""Make the data set of labelled images that the vision transformers learn."""

from pathlib import Path

from safetensors.numpy import save

from lib.files.files import atomic
from lib.files.inputs import with_digest
from lib.files.params import read_params
from lib.vision.cifar import read_cifar
from lib.vision.digits import read_digits
from lib.vision.sources import Source
from lib.work.command import OutFile, run


def main(section: str, official: Path, dataset: OutFile) -> None:
    params = read_params(section, Source)
    if params.n_test is None or params.seed is None:
        images = read_cifar(official, params.source)
    else:
        images = read_digits(official, params.n_test, params.seed)
    with atomic(dataset) as part:
        part.write_bytes(with_digest(save(images)))
    print(f"{len(images['train_labels'])} training and {len(images['test_labels'])} test images")


if __name__ == "__main__":
    run(main)
