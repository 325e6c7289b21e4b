"""Crops are crops of their images; RandAugment against Pillow, operation by operation, and its
draws.
"""

import math
import platform
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_sample_image
from torch import Tensor

import lib.vision.augmentation
from lib.vision.augmentation import RandAugment, crop_and_flip, operations, randaugment

# All is exact on x86-64. Elsewhere Pillow's compiler may fuse the multiply-add of `Image.blend`,
# which moves values that fall on a whole number; this is the only rounding that is not ours to
# choose.
BLEND_TOLERANCE = 0 if platform.machine() in ("x86_64", "AMD64") else 1
BLENDS = ("brightness", "colour", "contrast", "sharpness")


def bytes_of(shape: tuple[int, ...]) -> Tensor:
    """Random uint8 images."""
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=drawn(0))


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def crops(image, padding):
    """Every crop of an image of its own size, plain and mirrored, by slicing."""
    _, height, width = image.shape
    padded = torch.zeros(len(image), height + 2 * padding, width + 2 * padding, dtype=torch.uint8)
    padded[:, padding : padding + height, padding : padding + width] = image
    shifts = range(2 * padding + 1)
    plain = [padded[:, y : y + height, x : x + width] for y, x in product(shifts, shifts)]
    return plain + [crop.flip(-1) for crop in plain]


@pytest.mark.parametrize(("padding", "shape"), [(0, (1, 3, 3)), (1, (3, 4, 5)), (2, (2, 6, 3))])
def test_every_augmented_image_is_a_crop_and_every_crop_comes_up_evenly(padding, shape):
    image, n = bytes_of(shape), 4000
    found = crop_and_flip(image.expand(n, *shape), padding, drawn(0))
    candidates = torch.stack(crops(image, padding)).flatten(1)
    same = (found.flatten(1)[:, None] == candidates).all(-1)
    assert same.sum(1).eq(1).all()
    share = same.double().mean(0)
    assert (share - 1 / len(candidates)).abs().max() < 5 * math.sqrt(1 / len(candidates) / n)


def affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "identity": lambda image, _: image,
    "shear_x": lambda image, slope: affine(image, 1, slope, 0, 0, 1, 0),
    "shear_y": lambda image, slope: affine(image, 1, 0, 0, slope, 1, 0),
    "translate_x": lambda image, pixels: affine(image, 1, 0, pixels, 0, 1, 0),
    "translate_y": lambda image, pixels: affine(image, 1, 0, 0, 0, 1, pixels),
    "rotate": lambda image, degrees: image.rotate(degrees, Image.Resampling.NEAREST),
    "brightness": lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
    "colour": lambda image, factor: ImageEnhance.Color(image).enhance(factor),
    "contrast": lambda image, factor: ImageEnhance.Contrast(image).enhance(factor),
    "sharpness": lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor),
    "posterize": lambda image, bits: ImageOps.posterize(image, int(bits)),
    "solarize": lambda image, threshold: ImageOps.solarize(image, threshold),  # pyright: ignore[reportArgumentType]
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "equalize": lambda image, _: ImageOps.equalize(image),
}


def with_pillow(change: Callable[[Image.Image], Image.Image], images: Tensor) -> Tensor:
    """A function of one Pillow image, on each image in turn."""
    pixels = images.permute(0, 2, 3, 1).numpy()
    changed = np.stack([np.asarray(change(Image.fromarray(image))) for image in pixels])
    return torch.from_numpy(changed).permute(0, 3, 1, 2)


def difference(found: Tensor, wanted: Tensor) -> int:
    return int((found.int() - wanted.int()).abs().max())


def noise(n: int, height: int, width: int, seed: int, low: int = 0, high: int = 255) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(
        low, high + 1, (n, 3, height, width), dtype=torch.uint8, generator=generator
    )


def pictures(height: int, width: int) -> Tensor:
    """Flat and nearly flat channels, pieces of a photograph, noise, and duller and duller noise."""
    china = torch.from_numpy(load_sample_image("china.jpg").copy()).permute(2, 0, 1)
    pieces = china.unfold(1, height, 97).unfold(2, width, 123).flatten(1, 2).transpose(0, 1)
    dull = torch.cat(
        [noise(1, height, width, seed, 5 * seed, 255 - 7 * seed) for seed in range(20)]
    )
    edge = torch.stack(
        [
            torch.zeros(3, height, width),
            torch.full((3, height, width), 255),
            torch.ones(3, height, width),
        ]
    )
    edge[2, :, 0, 0] = torch.tensor([0, 2, 255])
    return torch.cat([edge.byte(), pieces, noise(4, height, width, 100), dull])


@pytest.mark.parametrize("size", [(32, 32), (24, 41), (2, 5)], ids=str)
@pytest.mark.parametrize("number", range(14), ids=PILLOW)
def test_an_operation_equals_pillows_at_every_magnitude(number, size):
    images = pictures(*size)
    change = operations(0, *size)[number][0]
    levels = {level for magnitude in range(31) for level in operations(magnitude, *size)[number][1]}
    images = images if len(levels) == 1 else images[::4]
    reference = PILLOW[change.__name__]
    for level in levels:
        wanted = with_pillow(lambda image, level=level: reference(image, level), images)
        tolerance = BLEND_TOLERANCE if change.__name__ in BLENDS else 0
        assert difference(change(images, level), wanted) <= tolerance, f"level {level}"


def test_the_ranges_are_those_of_torchvision_for_images_of_32_pixels():
    named = {
        magnitude: {change.__name__: levels for change, levels in operations(magnitude, 32, 32)}
        for magnitude in (0, 9, 30)
    }
    assert list(named[9]) == list(PILLOW)
    for magnitude, shear, shift, degrees, factor, bits, threshold in [
        (0, 0, 0, 0, 0, 8, 255),
        (9, 0.09, 4, 9, 0.27, 7, 178.5),
        (30, 0.3, 14, 30, 0.9, 4, 0),
    ]:
        levels = named[magnitude]
        for operation in ("shear_x", "shear_y"):
            assert levels[operation] == pytest.approx((shear, -shear))
        for operation in ("translate_x", "translate_y"):
            assert levels[operation] == (shift, -shift)
        assert levels["rotate"] == pytest.approx((degrees, -degrees))
        for operation in BLENDS:
            assert levels[operation] == pytest.approx((1 + factor, 1 - factor))
        assert levels["posterize"] == (bits, bits)
        assert levels["solarize"] == (threshold, threshold)


def test_the_chunk_changes_no_bit(monkeypatch):
    images = noise(300, 8, 8, 0)
    whole = randaugment(images, RandAugment(2, 9), torch.Generator().manual_seed(0))
    monkeypatch.setattr(lib.vision.augmentation, "CHUNK", 3 * 8 * 8 * 4)
    assert torch.equal(
        randaugment(images, RandAugment(2, 9), torch.Generator().manual_seed(0)), whole
    )


@pytest.mark.parametrize(
    "images",
    [torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.zeros(4, 3, 8, 8)],
    ids=["grey", "float"],
)
def test_other_than_colour_images_in_bytes_are_refused(images):
    with pytest.raises(
        ValueError, match=r"wanted uint8 images \[n, 3, height, width\], got torch.*\[4, "
    ):
        randaugment(images, RandAugment(2, 9), torch.Generator())
