"""RandAugment has the ranges of torchvision; the stage's test has every operation by Pillow."""

import pytest
import torch
from torch import Tensor

import lib.vision.augmentation
from lib.vision.augmentation import RandAugment, operations, randaugment

BLENDS = ("brightness", "colour", "contrast", "sharpness")
NAMES = "identity shear_x shear_y translate_x translate_y rotate brightness colour contrast"
NAMES += " sharpness posterize solarize autocontrast equalize"


def noise(n: int, height: int, width: int, seed: int, low: int = 0, high: int = 255) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(
        low, high + 1, (n, 3, height, width), dtype=torch.uint8, generator=generator
    )


def test_the_ranges_are_those_of_torchvision_for_images_of_32_pixels():
    named = {
        magnitude: {change.__name__: levels for change, levels in operations(magnitude, 32, 32)}
        for magnitude in (0, 9, 30)
    }
    assert list(named[9]) == NAMES.split()
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
