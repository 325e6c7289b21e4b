"""An image of any usual kind is decoded; a crop is where its box says; what is broken is named."""

import io
import math
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from lib.files.files import InputError
from lib.training.devices import generator
from lib.vision.pictures import centre_square, decoded
from lib.vision.streams import random_box, random_resized_crop
from tests.vision.arrow_made import drawn, encoded

ORANGE = (230, 120, 40)


def middle(data, size, centre=1.0):
    return torch.tensor(centre_square(data, size, centre))


def uniform(seed):
    """The numbers of a random box, others for each seed."""
    return torch.rand(22, generator=generator(seed), dtype=torch.float64).tolist()


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
        (flat("CMYK"), "JPEG"),
        (flat("RGBA"), "PNG"),
        (transparent(), "PNG"),
        (flat("P"), "GIF"),
        (flat("RGB", 1, 1), "PNG"),
    ],
)
def test_an_image_of_any_kind_becomes_rgb(image, file_format):
    pixels = middle(encoded(image, file_format), 16)
    assert pixels.shape == (16, 16, 3)
    assert (pixels.int() - torch.tensor(ORANGE)).abs().max() <= 12  # as a palette of the web rounds


JPEG = encoded(drawn(300, 200))
PNG = encoded(drawn(300, 200), "PNG")


@pytest.mark.parametrize(
    "data",
    [b"", b"<html>not found</html>", JPEG[:30], JPEG[9:]]
    + [whole[: len(whole) // 2] for whole in (JPEG, PNG)],
)
def test_what_is_no_whole_image_is_refused(data):
    with pytest.raises(InputError, match=r"^wanted a whole image, got: "):
        middle(data, 16)


@pytest.mark.parametrize(("width", "height"), [(120, 96), (64, 256), (32, 34)])
def test_a_centre_crop_is_the_middle_of_the_image_with_a_short_side_of_256_for_224(width, height):
    image = drawn(width, height)
    scale = 64 / min(width, height)
    whole = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BILINEAR)
    left = (whole.width - 56) // 2
    top = (whole.height - 56) // 2
    wanted = np.array(whole.crop((left, top, left + 56, top + 56)), float)
    found = middle(encoded(image, "PNG"), 56, centre=7 / 8).numpy()
    shifted = np.abs(np.roll(wanted, 2, axis=1) - wanted).mean()
    assert np.abs(found - wanted).mean() < 0.8 < shifted / 2


@pytest.mark.parametrize("larger", [2, 3, 5, 9])
def test_a_jpeg_decoded_at_a_part_of_its_size_shows_the_same_box(larger):
    image = drawn(40 * larger + 3, 30 * larger + 1)
    box = (3 * larger, 2 * larger, 19 * larger, 18 * larger)
    found = decoded(encoded(image, quality=95), 16, lambda *_: box)
    wanted = image.crop(box).resize((16, 16), Image.Resampling.BILINEAR)
    assert np.abs(np.array(found, float) - np.array(wanted, float)).mean() < 2


def boxes(width, height, n=2000):
    drawn_boxes = [random_box(width, height, uniform(i)) for i in range(n)]
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
    """In a square image, boxes up to 3/4 of the area always fit: there all is as it is drawn."""
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
    assert random_box(20, 1000, uniform(0)) == (0, 486, 20, 513)
    assert random_box(1000, 20, uniform(0)) == (486, 0, 513, 20)


def test_a_random_crop_is_its_box_and_half_of_them_are_mirrored():
    image = drawn(90, 70)
    data = encoded(image, "PNG")
    n_mirrored = 0
    for i in range(60):
        _, *numbers = torch.rand(23, generator=generator(i), dtype=torch.float64).tolist()
        box = random_box(90, 70, numbers)
        found = random_resized_crop(data, 24, generator(i)).astype(float)
        wanted = np.array(image.crop(box).resize((24, 24), Image.Resampling.BILINEAR), float)
        distances = [np.abs(found - one).mean() for one in (wanted, wanted[:, ::-1])]
        assert min(distances) < 1.5 < max(distances)
        n_mirrored += distances[1] < distances[0]
    assert 20 <= n_mirrored <= 40


def png_of_16_bits(colours):
    """A PNG of 9 × 9 pixels with 16 bits a colour, which Pillow does not write."""

    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    kind = {1: 0, 2: 4, 3: 2, 4: 6}[colours]
    header = struct.pack(">IIBBBBB", 9, 9, 16, kind, 0, 0, 0)
    row = b"\0" + np.full((9, colours), 40_000, ">u2").tobytes()
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(9 * row), b"IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks.items())


def tiff_of_16_bits():
    """A TIFF of 9 × 9 pixels with 16 bits for each of red, green and blue."""
    pixels = np.full((9, 9, 3), 40_000, "<u2").tobytes()
    tags = [(256, 3, 1, 9), (257, 3, 1, 9), (258, 3, 3, 134), (259, 3, 1, 1), (262, 3, 1, 2)]
    tags += [(273, 4, 1, 140), (277, 3, 1, 3), (278, 3, 1, 9), (279, 4, 1, len(pixels))]
    tags += [(339, 3, 1, 1)]
    packed = b"".join(struct.pack("<HHII", *tag) for tag in tags)
    start = b"II*\0" + struct.pack("<IH", 8, len(tags)) + packed + struct.pack("<I", 0)
    return start + struct.pack("<HHH", 16, 16, 16) + pixels


def deep_tiff(kind):
    return encoded(Image.fromarray(np.full((9, 9), 40_000, kind)), "TIFF")


DEEP = {
    "TIFF, grey": deep_tiff(np.uint16),
    "TIFF, floats": deep_tiff(np.float32),
    "TIFF, colours": tiff_of_16_bits(),
    **{f"PNG, {n} colours": png_of_16_bits(n) for n in (1, 2, 3, 4)},
    "PPM": b"P6 9 9 65535\n" + np.full((9, 9, 3), 40_000, ">u2").tobytes(),
    "PGM": b"P5 9 9 65535\n" + np.full((9, 9), 40_000, ">u2").tobytes(),
}


@pytest.mark.parametrize("data", DEEP.values(), ids=DEEP)
def test_an_image_of_more_than_eight_bits_a_colour_is_refused_not_cut_off(data):
    with Image.open(io.BytesIO(data)) as image:
        image.load()  # it is a whole image
    with pytest.raises(InputError, match="got: more than eight bits a colour"):
        middle(data, 8)


@pytest.mark.parametrize("file_format", ["PNG", "PPM", "BMP", "TIFF"])
def test_an_image_of_eight_bits_a_colour_stays_as_it_is(file_format):
    image = drawn(9, 9)
    np.testing.assert_array_equal(middle(encoded(image, file_format), 9), np.array(image))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("how", [{}, {"compression": "tiff_lzw"}])
def test_a_tiff_is_turned_once_as_the_same_png_is(orientation, how):
    """Pillow turns a TIFF while it reads it, and leaves a PNG as it is stored."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = drawn(60, 24)
    stored = [encoded(image, "TIFF", exif=exif, **how), encoded(image, "PNG", exif=exif)]
    for box in ((0, 0, 16, 16), (4, 6, 20, 22)):
        tiff, png = (np.array(decoded(data, 16, lambda *_, box=box: box)) for data in stored)
        np.testing.assert_array_equal(tiff, png)
    sizes = []
    for data in stored:
        decoded(data, 8, lambda *size: sizes.append(size) or (0, 0, 8, 8))
    assert sizes == [(24, 60) if orientation > 4 else (60, 24)] * 2


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_an_image_is_upright_as_its_camera_says(orientation):
    """What is stored is turned back, and cut afterwards."""
    upright = drawn(300, 120)
    turned = {3: 180, 6: 90, 8: 270}[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = encoded(upright.rotate(turned, expand=True), exif=exif, quality=95)
    for box in ((0, 0, 100, 100), (200, 20, 300, 120)):
        found = decoded(stored, 16, lambda *_, box=box: box)
        wanted = upright.crop(box).resize((16, 16), Image.Resampling.BILINEAR)
        assert np.abs(np.array(found, float) - np.array(wanted, float)).mean() < 2
