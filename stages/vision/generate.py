"""Make the data set of labelled images that the vision transformers learn.

Images that fit into memory become one file of pixels. Where there are more, the files' own bytes
are put into Arrow files, from which a training decodes them batch by batch.
"""

from pathlib import Path

from lib.vision.cifar import read_cifar
from lib.vision.digits import read_digits
from lib.vision.folders import split
from lib.vision.shards import write_jpegs
from lib.vision.sources import Cifar, Digits, OwnImages, read_source
from lib.vision.squares import own_pixels, write_pixels
from lib.vision.tables.fetched import FILES
from lib.work.command import OutFolder, run


def main(section: str, official: Path, images: OutFolder) -> None:
    source = read_source(section)
    match source:
        case Digits():
            write_pixels(images, read_digits(official, source.n_test, source.seed))
        case Cifar():
            coarse = source.labels == "coarse"
            write_pixels(images, read_cifar(official, source.source, coarse=coarse))
        case OwnImages():
            files = FILES.read(official / "files.parquet")
            parts = split(files, source.test_share, source.seed)
            if source.kept == "pixels":
                write_pixels(images, own_pixels(source, parts, section))
            else:
                write_jpegs(images, source, official, parts, section)


if __name__ == "__main__":
    run(main)
