"""RandAugment has the ranges of torchvision; the stage's test has every operation by Pillow."""

import pytest
import torch

import lib.vision.augmentation
from lib.vision.augmentation import RandAugment, operations, randaugment

BLENDS = ("brightness", "colour", "contrast", "sharpness")
NAMES = "identity shear_x shear_y translate_x translate_y rotate brightness colour contrast"
NAMES += " sharpness posterize solarize autocontrast equalize"


def test_the_ranges_are_those_of_torchvision_for_images_of_32_pixels():
    for magnitude, shear, shift, degrees, factor, bits, threshold in [
        (0, 0, 0, 0, 0, 8, 255),
        (9, 0.09, 4, 9, 0.27, 7, 178.5),
        (30, 0.3, 14, 30, 0.9, 4, 0),
    ]:
        levels = {change.__name__: levels for change, levels in operations(magnitude, 32, 32)}
        assert list(levels) == NAMES.split()
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
    images = torch.randint(256, (300, 3, 8, 8)).byte()
    whole = randaugment(images, RandAugment(2, 9), torch.Generator().manual_seed(0))
    monkeypatch.setattr(lib.vision.augmentation, "CHUNK", 3 * 8 * 8 * 4)
    parts = randaugment(images, RandAugment(2, 9), torch.Generator().manual_seed(0))
    assert torch.equal(parts, whole)
