"""A data set of images drawn here, as Arrow files with a manifest."""

import io

import numpy as np
from PIL import Image

from lib.vision.arrow import Manifest, described, write_manifest, write_shard

CLASSES = ["cat", "dog", "owl"]


def encoded(pixels, file_format="JPEG", **how):
    """An image, an array or a Pillow image, as the bytes of a file."""
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, file_format, **how)
    return file.getvalue()


def drawn(width, height, seed=0):
    """A smooth image in colour, another one for each seed."""
    noise = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)


def rows_of(images):
    """Rows of a data set: labels go round, and each name has its number."""
    return [(image, i % len(CLASSES), f"{i}.JPEG") for i, image in enumerate(images)]


def write_data(folder, train, test=None, size=8, rows_a_file=70):
    """A folder of Arrow files of these rows, with its manifest, which is returned."""
    files = {}
    for part, rows in (("train", train), ("test", test or train)):
        starts = range(0, len(rows), rows_a_file)
        paths = [folder / f"{part}-{i:05}.arrow" for i in range(len(starts))]
        for path, start in zip(paths, starts, strict=True):
            write_shard(path, rows[start : start + rows_a_file])
        files[part] = [described(path) for path in paths]
    manifest = Manifest(CLASSES, files, [], [120.0, 110.0, 100.0], [60.0, 50.0, 40.0], size, 1.0)
    write_manifest(folder, manifest)
    return manifest
