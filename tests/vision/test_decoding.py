"""An image of any usual kind is decoded; a crop is where its box says; what is broken is named."""

import io
import math
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lib.files.files import InputError
from lib.training.devices import generator
from lib.vision.streams import centre_box, centre_crop, decoded, random_box, random_resized_crop
from tests.vision.arrow_made import drawn, encoded

SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "imagenet-fullres-sample.tar"
ORANGE = (230, 120, 40)


def flat(mode, width=60, height=40):
    """An image of one colour, in a mode of Pillow."""
    image = Image.new("RGB", (width, height), ORANGE)
    return image.convert(mode)


def transparent():
    image = flat("P")
    image.info["transparency"] = bytes([0, 255])
    return image


@pytest.mark.parametrize(
    ("image", "file_format"),
    [
        (flat("RGB"), "JPEG"),
        (flat("CMYK"), "JPEG"),
        (flat("RGB"), "PNG"),
        (flat("RGBA"), "PNG"),
        (flat("P"), "PNG"),
        (transparent(), "PNG"),
        (flat("P"), "GIF"),
        (flat("RGB", 20, 9), "JPEG"),
        (flat("RGB", 1, 1), "PNG"),
    ],
)
def test_an_image_of_any_kind_becomes_rgb(image, file_format):
    data = encoded(image, file_format)
    for pixels in (
        centre_crop(data, 16, "orange"),
        random_resized_crop(data, 16, generator(0), "orange"),
    ):
        assert pixels.shape == (16, 16, 3)
        assert np.abs(pixels.astype(int) - ORANGE).max() <= 12  # of a palette of the web


def test_a_grey_image_has_three_equal_channels():
    grey = drawn(60, 40).convert("L")
    pixels = centre_crop(encoded(grey), 16, "grey")
    assert pixels.std() > 5
    assert (pixels == pixels[..., :1]).all()


WHOLE = encoded(drawn(300, 200))


@pytest.mark.parametrize(
    "data", [b"", b"<html>not found</html>", WHOLE[: len(WHOLE) // 2], WHOLE[:30], WHOLE[9:]]
)
def test_what_is_no_whole_image_is_named(data):
    with pytest.raises(InputError, match=r"^cat/7\.JPEG: wanted a whole image, got: "):
        centre_crop(data, 16, "cat/7.JPEG")


def test_a_truncated_png_is_named():
    data = encoded(drawn(300, 200), "PNG")
    with pytest.raises(InputError, match=r"^cat/7\.png: wanted a whole image, got: "):
        centre_crop(data[: len(data) // 2], 16, "cat/7.png")


def test_an_image_of_the_wanted_size_is_taken_pixel_by_pixel():
    image = drawn(16, 16)
    pixels = centre_crop(encoded(image, "PNG"), 16, "square")
    assert np.array_equal(pixels, np.array(image))


@pytest.mark.parametrize(("width", "height"), [(120, 96), (64, 256), (32, 34)])
def test_a_centre_crop_is_the_middle_of_the_image_with_a_short_side_of_256_for_224(width, height):
    image = drawn(width, height)
    scale = 64 / min(width, height)
    whole = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left = (whole.width - 56) // 2
    top = (whole.height - 56) // 2
    wanted = np.array(whole.crop((left, top, left + 56, top + 56)), float)
    found = centre_crop(encoded(image, "PNG"), 56, "picture").astype(float)
    shifted = np.abs(np.roll(wanted, 2, axis=1) - wanted).mean()
    assert np.abs(found - wanted).mean() < 0.8 < shifted / 2


@pytest.mark.parametrize("larger", [2, 3, 5, 9])
def test_a_jpeg_decoded_at_a_part_of_its_size_shows_the_same_box(larger):
    image = drawn(40 * larger + 3, 30 * larger + 1)
    box = (3 * larger, 2 * larger, 19 * larger, 18 * larger)
    found = decoded(encoded(image, quality=95), 16, lambda *_: box, "picture")
    wanted = image.crop(box).resize((16, 16), Image.Resampling.BILINEAR)
    assert np.abs(np.array(found, float) - np.array(wanted, float)).mean() < 2


def boxes(width, height, n=2000):
    drawn_boxes = [random_box(width, height, generator(0, "box", i)) for i in range(n)]
    left, top, right, bottom = np.array(drawn_boxes).T
    return left, top, right, bottom


@pytest.mark.parametrize(("width", "height"), [(500, 375), (333, 500), (20, 9), (3, 2)])
def test_a_random_box_lies_in_the_image(width, height):
    left, top, right, bottom = boxes(width, height, 300)
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (right <= width).all()
    assert (bottom <= height).all()
    assert (right > left).all()
    assert (bottom > top).all()


def test_random_boxes_have_uniform_areas_and_log_uniform_ratios():
    """Of a square image, boxes up to 3/4 of the area always fit: there all is as it is drawn."""
    left, top, right, bottom = boxes(1000, 1000)
    share = (right - left) * (bottom - top) / 1e6
    assert 0.079 < share.min() < 0.085
    assert share.max() > 0.93
    small = share < 0.74
    evenly = (np.quantile(share[small], [0.25, 0.5, 0.75]) - 0.08) / (0.74 - 0.08)
    np.testing.assert_allclose(evenly, [0.25, 0.5, 0.75], atol=0.04)
    ratio = np.log((right - left) / (bottom - top))[small] / math.log(4 / 3)
    np.testing.assert_allclose(
        np.quantile(ratio, [0, 0.25, 0.5, 0.75, 1]), [-1, -0.5, 0, 0.5, 1], atol=0.06
    )


def test_random_boxes_lie_anywhere():
    left, _, right, _ = boxes(1000, 1000)
    place = left / (1000 - (right - left)).clip(1)
    np.testing.assert_allclose(np.quantile(place, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.04)


def test_where_no_random_box_fits_the_largest_central_one_is_taken():
    assert random_box(20, 1000, generator(0)) == (0, 486, 20, 513)
    assert random_box(1000, 20, generator(0)) == (486, 0, 513, 20)


def test_a_random_crop_is_its_box_and_half_of_them_are_mirrored():
    image = drawn(90, 70)
    data = encoded(image, "PNG")
    n_mirrored = 0
    for i in range(60):
        box = random_box(90, 70, generator(i))
        found = random_resized_crop(data, 24, generator(i), "picture").astype(float)
        wanted = np.array(image.crop(box).resize((24, 24), Image.Resampling.BILINEAR), float)
        distances = [np.abs(found - one).mean() for one in (wanted, wanted[:, ::-1])]
        assert min(distances) < 1.5 < max(distances)
        n_mirrored += distances[1] < distances[0]
    assert 20 <= n_mirrored <= 40


def test_a_centre_box_is_square_and_central():
    assert centre_box(512, 256, 224) == (144, 16, 368, 240)


@pytest.mark.skipif(not SAMPLE.is_file(), reason="the sample of ImageNet is not beside this folder")
def test_real_jpegs_decode():
    with tarfile.open(SAMPLE) as archive:
        files = [(member.name, archive.extractfile(member)) for member in archive]
        images = {name: file.read() for name, file in files if file}
    assert len(images) > 9
    for name, data in images.items():
        whole = np.array(Image.open(io.BytesIO(data)).convert("RGB"), float)
        pixels = centre_crop(data, 224, name)
        assert abs(pixels.mean() - whole.mean()) < 40
